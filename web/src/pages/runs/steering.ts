import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, told, type Schemas } from "../../api/client";

export type Verb = Pick<Schemas["VerbIn"], "verb"> & Partial<Schemas["VerbIn"]>;

export const steer = (run: string, verb: Verb) =>
  told(api.POST("/v1/runs/{run}/verbs", { params: { path: { run } }, body: { task: "", reason: "", ancestors: false, only_failed: false, ...verb } }));

/** Steers a run or one of its tasks, and reads the run anew. */
export function useSteering(run: string, done?: () => void) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (verb: Verb) => steer(run, verb),
    onSuccess: () => {
      done?.();
      return queries.invalidateQueries({ queryKey: ["run", run] });
    },
  });
}

/** Whether somebody else has to agree first. */
export const waits = (answer: object | undefined): boolean => answer !== undefined && "waits" in answer;
