import { useQuery } from "@tanstack/react-query";
import { createContext, use, type ReactNode } from "react";
import { api, keepWord, told, type Schemas } from "./client";

export type Session = Schemas["SessionOut"];
export type Role = "viewer" | "submitter" | "operator" | "rule-author" | "approver" | "administrator";

const Known = createContext<Session | null>(null);

export function useSessionQuery() {
  return useQuery({
    queryKey: ["session"],
    queryFn: async () => {
      const session = await told(api.GET("/v1/session"));
      keepWord(session.word);
      return session;
    },
    staleTime: Infinity,
    retry: false,
  });
}

export function SessionProvider({ session, children }: { session: Session; children: ReactNode }) {
  return <Known value={session}>{children}</Known>;
}

export function useSession(): Session {
  const session = use(Known);
  if (session === null) throw new Error("nobody is logged in");
  return session;
}

/** Whether an act is offered at all. The server decides again when it is asked. */
export function useMay(role: Role): boolean {
  return useSession().roles.includes(role);
}
