import "@mantine/core/styles.css";
import "./styles.css";

import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Problem } from "./api/client";
import { App } from "./app";
import { nonce } from "./nonce";
import { TextsProvider } from "./texts/texts";
import { theme, variables } from "./theme";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (count, problem) => count < 3 && !(problem instanceof Problem && ((problem.status >= 400 && problem.status < 500) || problem.status === 501)),
      staleTime: 1_000,
      refetchOnWindowFocus: true,
    },
  },
});

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no root");
createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={variables} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={queries}>
        <TextsProvider>
          <App />
        </TextsProvider>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
