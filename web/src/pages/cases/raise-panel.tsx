import { Anchor, Button, Divider, Group, Select, Stack, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { api, told } from "../../api/client";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

/** What a person raises for a case: what the rules offer, or something new, which suspends the case. */
export function RaisePanel({ name, items }: { name: string; items: string[] }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const [item, setItem] = useState<string | null>(null);
  const [what, setWhat] = useState("");
  const [how, setHow] = useState("");
  const path = { case: name };
  const offered = useQuery({
    queryKey: ["triggers", name, item],
    queryFn: () => told(api.GET("/v1/cases/{case}/triggers", { params: { path, query: { item: item ?? "" } } })),
  });
  const raising = useMutation({
    mutationFn: (given: { trigger: string; new: string; reason: string }) =>
      told(api.POST("/v1/cases/{case}/triggers", { params: { path }, body: { ...given, item: item ?? "" } })),
    onSuccess: () => {
      setWhat("");
      setHow("");
      void queries.invalidateQueries({ queryKey: ["case", name] });
    },
  });
  return (
    <Stack gap="xs" className="panel" p="md" component="section" aria-labelledby="raise">
      <Title order={2} id="raise">
        {texts.cases.raise}
      </Title>
      <Select size="xs" clearable label={texts.cases.of} placeholder={texts.cases.whole} data={items} value={item} onChange={setItem} />
      <ProblemBox problem={offered.error} />
      <Text fz="sm" c="dimmed">
        {offered.data?.triggers.length === 0 ? texts.cases.noTriggers : texts.cases.raiseWords}
      </Text>
      {offered.data?.triggers.map((one) => (
        <Group key={one.name} justify="space-between" wrap="nowrap">
          <Text fz="sm">
            <b>{visible(one.name)}</b> {visible(one.words)}{" "}
            {!one.acts && (
              <Text span c="dimmed" fz="sm">
                ({texts.cases.shadowed})
              </Text>
            )}
          </Text>
          <Button
            size="xs"
            variant="default"
            loading={raising.isPending}
            onClick={() => raising.mutate({ trigger: one.name, new: "", reason: "" })}
          >
            {texts.cases.raiseIt(visible(one.name))}
          </Button>
        </Group>
      ))}
      <Divider label={texts.cases.newOne} labelPosition="left" />
      <TextInput size="sm" label={texts.cases.what} value={what} maxLength={200} onChange={(event) => setWhat(event.currentTarget.value)} />
      <Textarea size="sm" label={texts.cases.how} value={how} autosize minRows={1} maxLength={2000} onChange={(event) => setHow(event.currentTarget.value)} />
      <Text fz="sm" c="dimmed">
        {texts.cases.newWords}
      </Text>
      <Group>
        <Button disabled={what.trim() === ""} loading={raising.isPending} onClick={() => raising.mutate({ trigger: "", new: what.trim(), reason: how })}>
          {texts.cases.raiseNew}
        </Button>
      </Group>
      <ProblemBox problem={raising.error} />
      {raising.data && (
        <Text role="status">
          {raising.data.incident === null ? texts.cases.nothing : texts.cases.raised}{" "}
          {raising.data.incident !== null && (
            <Anchor component={Link} href={`/incidents/${raising.data.incident}`}>
              {texts.cases.lookAt}
            </Anchor>
          )}
        </Text>
      )}
    </Stack>
  );
}
