import { Button, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { useSteering } from "./steering";

/** Cancels a run, once it was shown what that stops. */
export function CancelDialog({ run }: { run: Schemas["RunDetailsOut"] }) {
  const texts = useTexts();
  const [opened, { open, close }] = useDisclosure(false);
  const [reason, setReason] = useState("");
  const cancelling = useSteering(run.id, close);
  const running = run.tasks.filter((one) => one.state === "running" || one.state === "faulted");
  const jobs = running.reduce((sum, one) => sum + one.count - one.well - one.bad, 0);
  return (
    <>
      <Button variant="default" onClick={open}>
        {texts.runs.cancel}
      </Button>
      <Modal opened={opened} onClose={close} title={texts.runs.cancelTitle} closeButtonProps={{ "aria-label": texts.app.close }} centered>
        <Stack gap="sm">
          <ProblemBox problem={cancelling.error} />
          <Text fz="sm">{texts.runs.cancelWords(running.length, jobs)}</Text>
          <TextInput label={texts.runs.reason} value={reason} maxLength={1000} onChange={(event) => setReason(event.currentTarget.value)} />
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={close}>
              {texts.runs.keep}
            </Button>
            <Button color="red.9" loading={cancelling.isPending} onClick={() => cancelling.mutate({ verb: "remove", reason })}>
              {texts.runs.cancelIt}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
