import { Anchor, Badge, Button, Checkbox, Group, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { api, Problem, told } from "../../api/client";
import { useMay } from "../../api/session";
import { PlaybookDrawn } from "../../parts/playbook";
import { Plain, visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import type { ShownRule } from "../../parts/rule-tree";
import { useTexts } from "../../texts/texts";

interface Given {
  level: string;
  name: string;
  rule: string;
  added: boolean;
}

type WholeRule = ShownRule & { effective: string; does: string };

/** One rule: what it says where it stands, and what can be done with it. */
export function RuleCard({ level, name, rule, added }: Given) {
  const texts = useTexts();
  const queries = useQueryClient();
  const may = useMay("rule-author");
  const [confirmed, setConfirmed] = useState(false);
  const [reason, setReason] = useState("");
  const path = { level: level as "domain", name, rule };
  const found = useQuery({
    queryKey: ["rule-set", level, name, "rule", rule],
    queryFn: () => told(api.GET("/v1/rules/{level}/{name}/rules/{rule}", { params: { path } })),
  });
  const stating = useMutation({
    mutationFn: (state: "active" | "shadow") =>
      told(api.POST("/v1/rules/{level}/{name}/rules/{rule}/state", { params: { path }, body: { state, confirmed, reason } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["rule-set"] }),
  });
  const one = found.data?.rule as unknown as WholeRule | undefined;
  if (one === undefined) return <ProblemBox problem={found.error} />;
  const against = stating.error instanceof Problem && stating.error.status === 409;
  return (
    <Stack gap="xs" className="panel" p="md" component="section" aria-labelledby="rule">
      <Group justify="space-between">
        <Title order={2} id="rule">
          {texts.rules.chosen}
        </Title>
        <Badge variant="light" color={one.state === "active" ? "tide" : "gray"} c="var(--ink)" tt="none">
          {one.state === "active" ? texts.rules.active : texts.rules.shadow}
        </Badge>
      </Group>
      {added && one.state !== "active" && <Text role="status">{texts.rules.saved2}</Text>}
      <Text fz="sm" c="dimmed">
        {texts.rules.effective}
      </Text>
      <Plain text={one.effective} />
      {one.conclusion?.steps && <PlaybookDrawn steps={one.conclusion.steps} height={130} />}
      {one.description && <Text fz="sm">{visible(one.description)}</Text>}
      <Text fz="sm" c="dimmed">
        {texts.rules.author} {visible(one.author ?? "")}
        {one.reference_incident && (
          <>
            {" · "}
            <Anchor component={Link} href={`/incidents/${one.reference_incident}`} fz="sm">
              {texts.rules.reference_incident} {visible(one.reference_incident.slice(0, 8))}
            </Anchor>
          </>
        )}
      </Text>
      {may && (
        <>
          <ProblemBox problem={stating.error} />
          {against && (
            <Group align="flex-end">
              <TextInput size="xs" label={texts.inbox.reason} value={reason} onChange={(event) => setReason(event.currentTarget.value)} />
              <Checkbox label={texts.inbox.anyway} checked={confirmed} onChange={(event) => setConfirmed(event.currentTarget.checked)} />
            </Group>
          )}
          <Group gap="xs">
            {one.state === "active" ? (
              <Button variant="default" loading={stating.isPending} onClick={() => stating.mutate("shadow")}>
                {texts.rules.withdraw}
              </Button>
            ) : (
              <Button loading={stating.isPending} onClick={() => stating.mutate("active")}>
                {texts.rules.promote}
              </Button>
            )}
          </Group>
          {one.state !== "active" && (
            <Text fz="sm" c="dimmed">
              {texts.rules.promoteWords}
            </Text>
          )}
        </>
      )}
    </Stack>
  );
}
