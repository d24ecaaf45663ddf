import { Button, Group, Paper, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, told, type Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { Ago } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

function One({ asked }: { asked: Schemas["ApprovalOut"] }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const { subject } = useSession();
  const may = useMay("approver");
  const [reason, setReason] = useState("");
  const answering = useMutation({
    mutationFn: (agree: boolean) =>
      told(api.POST("/v1/approvals/{request}", { params: { path: { request: asked.id } }, body: { agree, reason } })),
    onSuccess: () => Promise.all([queries.invalidateQueries({ queryKey: ["approvals"] }), queries.invalidateQueries({ queryKey: ["inbox"] })]),
  });
  return (
    <Paper component="article" aria-label={visible(asked.words)} withBorder p="sm">
      <Text>{visible(asked.words)}</Text>
      <Text fz="sm" c="dimmed">
        {texts.inbox.askedBy(visible(asked.by))} · <Ago at={asked.at} /> {asked.why && `· ${visible(asked.why)}`}
      </Text>
      <ProblemBox problem={answering.error} />
      {!may && <Text fz="sm">{texts.app.ofRole("approver")}</Text>}
      {may && subject === asked.by && <Text fz="sm">{texts.inbox.own}</Text>}
      {may && subject !== asked.by && (
        <Group mt="xs" align="flex-end">
          <TextInput size="xs" flex={1} miw={160} label={texts.inbox.reason} value={reason} onChange={(event) => setReason(event.currentTarget.value)} />
          <Button size="xs" loading={answering.isPending} onClick={() => answering.mutate(true)}>
            {texts.inbox.agree}
          </Button>
          <Button size="xs" variant="default" disabled={answering.isPending} onClick={() => answering.mutate(false)}>
            {texts.inbox.refuse}
          </Button>
        </Group>
      )}
    </Paper>
  );
}

/** What waits for an approval. */
export function Approvals() {
  const texts = useTexts();
  const found = useQuery({
    queryKey: ["approvals"],
    queryFn: () => told(api.GET("/v1/approvals", { params: { query: { state: "waiting" } } })),
    // One that is answered and one that comes leave the inbox as long as it was: nothing tells of that.
    refetchInterval: 5_000,
  });
  return (
    <section aria-labelledby="approvals">
      <Title order={2} id="approvals" mb="xs">
        {texts.inbox.approvals}
      </Title>
      <ProblemBox problem={found.error} />
      <Stack gap="xs">{found.data?.approvals.map((one) => <One key={one.id} asked={one} />)}</Stack>
    </section>
  );
}
