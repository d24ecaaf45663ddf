import { Button, Group, List, Modal, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, told } from "../../api/client";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

const ask = (name: string, dry_run: boolean) =>
  told(api.POST("/v1/runs/{run}/resume", { params: { path: { run: name } }, body: { task: "", reason: "", dry_run } }));

/** Lets a run that has ended go on, once it was shown what runs again. */
export function ResumeDialog({ name }: { name: string }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const [opened, { open, close }] = useDisclosure(false);
  const planned = useQuery({ queryKey: ["run", name, "resume"], queryFn: () => ask(name, true), enabled: opened, gcTime: 0, retry: false });
  const resuming = useMutation({
    mutationFn: () => ask(name, false),
    onSuccess: () => {
      close();
      return queries.invalidateQueries({ queryKey: ["run", name] });
    },
  });
  const external = planned.data?.again.filter((one) => one.external).map((one) => one.task) ?? [];
  return (
    <>
      <Button onClick={open}>{texts.runs.resume}</Button>
      <Modal opened={opened} onClose={close} title={texts.runs.resumeTitle} closeButtonProps={{ "aria-label": texts.app.close }} centered>
        <Stack gap="sm">
          <ProblemBox problem={planned.error ?? resuming.error} />
          {planned.data && (
            <>
              <Text fz="sm">{texts.runs.resumeAgain}</Text>
              <List size="sm">
                {planned.data.again.map((one) => (
                  <List.Item key={one.task}>
                    {visible(one.task)}
                    {one.elements !== null && one.of !== null && one.of > 1 && `: ${texts.runs.resumeElements(one.elements, one.of)}`}
                  </List.Item>
                ))}
              </List>
              {planned.data.kept.length > 0 && <Text fz="sm">{texts.runs.resumeKept(visible(planned.data.kept.join(", ")))}</Text>}
              {external.length > 0 && (
                <Text fz="sm" fw={600}>
                  {texts.runs.resumeExternal(visible(external.join(", ")))}
                </Text>
              )}
            </>
          )}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={close}>
              {texts.app.cancel}
            </Button>
            <Button disabled={!planned.data} loading={resuming.isPending} onClick={() => resuming.mutate()}>
              {texts.runs.resumeIt}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
