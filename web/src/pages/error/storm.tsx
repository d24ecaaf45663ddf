import { Anchor, Button, Group, Paper, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import type { InboxGroup } from "../../api/inbox-group";

/** A rule as `level/set#rule`, and the way to it. */
function RuleLink({ rule }: { rule: string }) {
  const [set = "", id = ""] = rule.split("#");
  return (
    <Anchor component={Link} href={`/rules/${set.split("/").map(encodeURIComponent).join("/")}?rule=${encodeURIComponent(id)}`} fz="sm">
      {visible(set)} · {visible(id.slice(0, 8))}
    </Anchor>
  );
}

function Tried({ storm, tried }: { storm: string; tried: Schemas["CanaryOut"] }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const may = useMay("operator");
  const [reason, setReason] = useState("");
  const deciding = useMutation({
    mutationFn: (what: "try" | "all") =>
      told(api.POST("/v1/safeguards/groups", { body: { group: storm, rule: tried.rule, fingerprint: tried.fingerprint, do: what, reason } })),
    onSuccess: () => Promise.all([queries.invalidateQueries({ queryKey: ["safeguards"] }), queries.invalidateQueries({ queryKey: ["inbox"] })]),
  });
  return (
    <Paper withBorder p="sm">
      <Text fw={600} fz="sm">
        {tried.rule === "" ? texts.inbox.defaultPolicy : <RuleLink rule={tried.rule} />}
      </Text>
      <Text fz="sm">{texts.inbox.canary(tried.well, tried.bad, tried.pending.length)}</Text>
      <ProblemBox problem={deciding.error} />
      {may ? (
        <Group mt="xs" align="flex-end">
          <TextInput size="xs" flex={1} miw={160} required label={texts.inbox.reason} value={reason} onChange={(event) => setReason(event.currentTarget.value)} />
          <Button size="xs" disabled={reason.trim() === ""} loading={deciding.isPending} onClick={() => deciding.mutate("try")}>
            {texts.inbox.stormTry}
          </Button>
          <Button size="xs" variant="default" disabled={reason.trim() === "" || deciding.isPending} onClick={() => deciding.mutate("all")}>
            {texts.inbox.stormAll}
          </Button>
        </Group>
      ) : (
        <Text fz="sm">{texts.app.ofRole("operator")}</Text>
      )}
    </Paper>
  );
}

/** The group of a storm: what was tried on its first failures, and how it goes on. */
export function Storm({ group }: { group: InboxGroup }) {
  const texts = useTexts();
  const safeguards = useQuery({ queryKey: ["safeguards"], queryFn: () => told(api.GET("/v1/safeguards")) });
  const storm = safeguards.data?.groups.find((one) => one.id === group.group);
  return (
    <section aria-labelledby="storm">
      <Title order={2} id="storm">
        {texts.inbox.storm}
      </Title>
      <Text fz="sm" c="dimmed" mb="xs">
        {texts.inbox.stormWords}
      </Text>
      <ProblemBox problem={safeguards.error} />
      {storm && (
        <Stack gap="xs">
          <Text fz="sm">{texts.inbox.stormOf(storm.trait, visible(storm.value), storm.failures)}</Text>
          {storm.tried.filter((one) => one.fingerprint === "" || one.fingerprint === group.fingerprint).map((one) => (
            <Tried key={`${one.rule} ${one.fingerprint}`} storm={storm.id} tried={one} />
          ))}
        </Stack>
      )}
    </section>
  );
}
