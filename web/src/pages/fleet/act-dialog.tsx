import { Button, Group, Modal, Select, Stack, Text, Textarea } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, told } from "../../api/client";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

/** What an operator does to a part of the fleet. */
export type FleetAct = { do: "drain"; of: "pilot" | "site"; name: string; many: number } | { do: "close" | "open"; of: "host"; name: string };

const TIMES = { always: null, hour: 3_600, day: 86_400, week: 604_800 } as const;
type HowLong = keyof typeof TIMES;

function carryOut(act: FleetAct, reason: string, howLong: HowLong): Promise<unknown> {
  if (act.do === "drain") {
    const which = act.of === "site" ? { site: act.name } : { site: "", pilots: [act.name] };
    return told(api.POST("/v1/pilots/drain", { body: { ...which, host: "", reason } }));
  }
  const params = { path: { host: act.name } };
  if (act.do === "open") return told(api.POST("/v1/hosts/{host}/open", { params, body: { reason } }));
  return told(api.POST("/v1/hosts/{host}/close", { params, body: { reason, seconds: TIMES[howLong] } }));
}

/** Asks why, and does it. */
export function ActDialog({ act, close }: { act: FleetAct; close(): void }) {
  const texts = useTexts();
  const words = texts.fleet;
  const queries = useQueryClient();
  const [reason, setReason] = useState("");
  const [howLong, setHowLong] = useState<HowLong>("always");
  const acting = useMutation({
    mutationFn: () => carryOut(act, reason.trim(), howLong),
    onSuccess: async () => {
      close();
      await queries.invalidateQueries({ queryKey: ["fleet"] });
    },
  });
  const name = visible(act.name);
  const title = act.do === "drain" ? words.drainTitle(name) : act.do === "close" ? words.closeTitle(name) : words.openTitle(name);
  const what = act.do === "drain" ? words.drainWords(act.many) : act.do === "close" ? words.closeWords : words.openWords;
  return (
    <Modal opened onClose={close} title={title} closeButtonProps={{ "aria-label": texts.app.close }}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          acting.mutate();
        }}
      >
        <Stack gap="sm">
          <Text fz="sm">{what}</Text>
          {act.do === "close" && (
            <Select
              label={words.howLong}
              allowDeselect={false}
              value={howLong}
              onChange={(value) => setHowLong((value ?? "always") as HowLong)}
              data={Object.entries(words.times).map(([value, label]) => ({ value, label }))}
            />
          )}
          <Textarea
            label={texts.inbox.reason}
            description={texts.inbox.reasonHint}
            required
            maxLength={200}
            autosize
            minRows={2}
            data-autofocus
            value={reason}
            onChange={(event) => setReason(event.currentTarget.value)}
          />
          <ProblemBox problem={acting.error} />
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {texts.app.cancel}
            </Button>
            <Button type="submit" loading={acting.isPending} disabled={reason.trim() === ""}>
              {words.acts[act.do]}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
