import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/forestay/apps/server/pages/static",
    emptyOutDir: true,
    // Nothing is written into the page itself: its policy would not let it run.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    target: "es2022",
    chunkSizeWarningLimit: 700,
  },
});
