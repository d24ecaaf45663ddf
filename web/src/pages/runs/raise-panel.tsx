import { Anchor, Button, Divider, Group, Select, Stack, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { api, told } from "../../api/client";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

/** What a person raises for a run: what the rules offer, or something new, which suspends the run. */
export function RaisePanel({ name, tasks }: { name: string; tasks: string[] }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const [task, setTask] = useState<string | null>(null);
  const [what, setWhat] = useState("");
  const [how, setHow] = useState("");
  const path = { run: name };
  const offered = useQuery({
    queryKey: ["triggers", name, task],
    queryFn: () => told(api.GET("/v1/runs/{run}/triggers", { params: { path, query: { task: task ?? "" } } })),
  });
  const raising = useMutation({
    mutationFn: (given: { trigger: string; new: string; reason: string }) =>
      told(api.POST("/v1/runs/{run}/triggers", { params: { path }, body: { ...given, task: task ?? "" } })),
    onSuccess: () => {
      setWhat("");
      setHow("");
      void queries.invalidateQueries({ queryKey: ["run", name] });
    },
  });
  return (
    <Stack gap="xs" className="panel" p="md" component="section" aria-labelledby="raise">
      <Title order={2} id="raise">
        {texts.runs.raise}
      </Title>
      <Select size="xs" clearable label={texts.runs.of} placeholder={texts.runs.whole} data={tasks} value={task} onChange={setTask} />
      <ProblemBox problem={offered.error} />
      <Text fz="sm" c="dimmed">
        {offered.data?.triggers.length === 0 ? texts.runs.noTriggers : texts.runs.raiseWords}
      </Text>
      {offered.data?.triggers.map((one) => (
        <Group key={one.name} justify="space-between" wrap="nowrap">
          <Text fz="sm">
            <b>{visible(one.name)}</b> {visible(one.words)}{" "}
            {!one.acts && (
              <Text span c="dimmed" fz="sm">
                ({texts.runs.shadowed})
              </Text>
            )}
          </Text>
          <Button
            size="xs"
            variant="default"
            loading={raising.isPending}
            onClick={() => raising.mutate({ trigger: one.name, new: "", reason: "" })}
          >
            {texts.runs.raiseIt(visible(one.name))}
          </Button>
        </Group>
      ))}
      <Divider label={texts.runs.newOne} labelPosition="left" />
      <TextInput size="sm" label={texts.runs.what} value={what} maxLength={200} onChange={(event) => setWhat(event.currentTarget.value)} />
      <Textarea size="sm" label={texts.runs.how} value={how} autosize minRows={1} maxLength={2000} onChange={(event) => setHow(event.currentTarget.value)} />
      <Text fz="sm" c="dimmed">
        {texts.runs.newWords}
      </Text>
      <Group>
        <Button disabled={what.trim() === ""} loading={raising.isPending} onClick={() => raising.mutate({ trigger: "", new: what.trim(), reason: how })}>
          {texts.runs.raiseNew}
        </Button>
      </Group>
      <ProblemBox problem={raising.error} />
      {raising.data && (
        <Text role="status">
          {raising.data.incident === null ? texts.runs.nothing : texts.runs.raised}{" "}
          {raising.data.incident !== null && (
            <Anchor component={Link} href={`/incidents/${raising.data.incident}`}>
              {texts.runs.lookAt}
            </Anchor>
          )}
        </Text>
      )}
    </Stack>
  );
}
