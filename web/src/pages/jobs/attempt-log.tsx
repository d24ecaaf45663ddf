import { Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, Problem, toldText } from "../../api/client";
import { LogLines } from "../../parts/log-lines";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

const KEPT = 200_000;

interface Given {
  job: string;
  attempt: number;
  live: boolean;
  deciding: readonly string[];
}

/** The end of what an attempt printed, the deciding line marked; while it runs, all from then on. */
export function AttemptLog({ job, attempt, live, deciding }: Given) {
  const texts = useTexts();
  const [text, setText] = useState("");
  const stored = useQuery({
    queryKey: ["job", job, "log", attempt],
    queryFn: () => toldText(api.GET("/v1/jobs/{job}/log", { params: { path: { job }, query: { attempt } }, parseAs: "text" })),
    enabled: !live && attempt > 0,
    retry: false,
  });
  useEffect(() => {
    if (!live) return;
    setText("");
    const source = new EventSource(`/v1/jobs/${encodeURIComponent(job)}/log?follow=true`);
    source.addEventListener("log", (event: MessageEvent<string>) => {
      const { text: more } = JSON.parse(event.data) as { text: string };
      setText((before) => (before + more).slice(-KEPT));
    });
    source.addEventListener("end", () => source.close());
    return () => source.close();
  }, [live, job, attempt]);
  const shown = live ? text : (stored.data ?? "");
  const missing = stored.error instanceof Problem && stored.error.status === 404;
  const title = attempt > 0 ? texts.jobs.logOf(attempt) : texts.jobs.log;
  return (
    <section aria-labelledby="log">
      <Title order={2} id="log" mb={4}>
        {title}
      </Title>
      {live && (
        <Text fz="sm" c="dimmed">
          {texts.jobs.following}
        </Text>
      )}
      {!missing && <ProblemBox problem={stored.error} />}
      {shown ? <LogLines lines={shown.replace(/\n$/, "").split("\n")} deciding={deciding} label={texts.jobs.log} /> : <Text fz="sm">{texts.jobs.noLog}</Text>}
    </section>
  );
}
