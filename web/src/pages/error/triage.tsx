import { Button, Group, Menu, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, told, type Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { Moment } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

type Known = Schemas["KnownErrorOut"];
type Said = Omit<Schemas["TriageIn"], "reason">;
const SNOOZES = ["hours4", "day", "week"] as const;
const SECONDS = { hours4: 4 * 3600, day: 86_400, week: 7 * 86_400 };

/** Who has an error, that it may wait, that it is fixed. */
export function Triage({ error }: { error: Known }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const session = useSession();
  const may = useMay("operator");
  const [assignee, setAssignee] = useState("");
  const [reason, setReason] = useState("");
  const saying = useMutation({
    mutationFn: (said: Said) =>
      told(api.POST("/v1/errors/{fingerprint}/triage", { params: { path: { fingerprint: error.fingerprint } }, body: { ...said, reason } })),
    onSuccess: (known) => {
      queries.setQueryData(["error", error.fingerprint], known);
      setReason("");
      setAssignee("");
      void queries.invalidateQueries({ queryKey: ["inbox"] });
    },
  });
  const say = (act: Said["act"], more: Partial<Said> = {}) => saying.mutate({ act, assignee: "", seconds: 0, ...more });
  const closed = error.state === "resolved" || error.state === "snoozed";
  return (
    <section aria-labelledby="triage">
      <Stack gap="xs">
        <Title order={2} id="triage">
          {texts.error.triage}
        </Title>
        <Text fz="sm">
          {error.assignee ? texts.error.has(visible(error.assignee)) : texts.error.nobody}
          {error.why && (
            <>
              {" "}
              {visible(error.by)}: {visible(error.why)}
            </>
          )}
          {error.until && (
            <>
              {" "}
              {texts.error.until} <Moment at={error.until} />
            </>
          )}
        </Text>
        {may ? (
          <>
            <TextInput size="xs" label={texts.error.note} value={reason} maxLength={200} onChange={(event) => setReason(event.currentTarget.value)} />
            <Group gap="xs">
              {error.assignee !== session.subject && (
                <Button size="xs" variant="default" onClick={() => say("assign", { assignee: session.subject })}>
                  {texts.error.take}
                </Button>
              )}
              {error.state === "new" && (
                <Button size="xs" variant="default" onClick={() => say("acknowledge")}>
                  {texts.error.acknowledge}
                </Button>
              )}
              <Menu position="bottom-start">
                <Menu.Target>
                  <Button size="xs" variant="default">
                    {texts.error.snooze}
                  </Button>
                </Menu.Target>
                <Menu.Dropdown>
                  {SNOOZES.map((one) => (
                    <Menu.Item key={one} onClick={() => say("snooze", { seconds: SECONDS[one] })}>
                      {texts.error.snoozes[one]}
                    </Menu.Item>
                  ))}
                </Menu.Dropdown>
              </Menu>
              {error.state !== "resolved" && (
                <Button size="xs" variant="default" onClick={() => say("resolve")}>
                  {texts.error.resolve}
                </Button>
              )}
              {closed && (
                <Button size="xs" variant="default" onClick={() => say("reopen")}>
                  {texts.error.reopen}
                </Button>
              )}
            </Group>
            <Group gap="xs" align="flex-end">
              <TextInput size="xs" flex={1} label={texts.error.assignTo} value={assignee} onChange={(event) => setAssignee(event.currentTarget.value)} />
              <Button size="xs" variant="default" disabled={assignee.trim() === ""} onClick={() => say("assign", { assignee: assignee.trim() })}>
                {texts.error.assign}
              </Button>
            </Group>
          </>
        ) : (
          <Text fz="sm" c="dimmed">
            {texts.app.ofRole("operator")}
          </Text>
        )}
        <ProblemBox problem={saying.error} />
      </Stack>
    </section>
  );
}
