import { ActionIcon, Anchor, Badge, Button, Checkbox, Divider, Grid, Group, Paper, Select, Stack, Table, Text, Textarea, TextInput, Title, Tooltip, UnstyledButton } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { api, Problem, told, type Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { CelEditor } from "../../parts/cel-editor";
import { PlaybookDrawn } from "../../parts/playbook";
import { IconArrowDown, IconArrowUp, IconPlus, IconX } from "../../parts/icons";
import { Plain, visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { StepFields } from "../../parts/step-fields";
import { stepWords, type Step } from "../../parts/step-words";
import { amount, unitOf } from "../../parts/units";
import { useTexts } from "../../texts/texts";
import { PALETTE } from "./palette";
import { ReplayChart } from "./replay-chart";

const OVER = new Set(["complete", "ignored", "failed", "acting"]);
const DAYS = 30 * 86_400_000;

function literal(value: unknown): string | null {
  if (typeof value === "string") return JSON.stringify(value);
  return typeof value === "number" || typeof value === "boolean" ? String(value) : null;
}

interface Given {
  level: string;
  name: string;
  incident: Schemas["IncidentWholeOut"];
}

/** A rule, written for one incident: what is known of it stands beside, and the condition's truth is shown as it is typed. */
export function RuleEditor({ level, name, incident }: Given) {
  const texts = useTexts();
  const queries = useQueryClient();
  const [, go] = useLocation();
  const operator = useMay("operator");
  // An unknown cause is that of many errors: the rule is for this one.
  const [condition, setCondition] = useState(
    incident.cause === "unknown" && incident.fingerprint ? `exception.fingerprint == ${JSON.stringify(incident.fingerprint)}` : `cause == ${JSON.stringify(incident.cause)}`,
  );
  const [description, setDescription] = useState("");
  const [steps, setSteps] = useState<Step[]>([]);
  const [kept, setKept] = useState<string | null>(null);
  const [wanted, setWanted] = useState("");
  const [confirmed, setConfirmed] = useState(false);
  const [asked] = useDebouncedValue(condition, 250);
  const conclusion = useMemo(() => (kept ? { playbook: kept, steps: [] } : { playbook: "", steps }), [kept, steps]);
  const fields = useQuery({ queryKey: ["fields"], queryFn: () => told(api.GET("/v1/rules/context")), staleTime: Infinity });
  const playbooks = useQuery({ queryKey: ["playbooks"], queryFn: () => told(api.GET("/v1/playbooks")) });
  const checked = useQuery({
    queryKey: ["check", incident.id, asked, conclusion],
    queryFn: () =>
      told(api.POST("/v1/rules/check", { body: { condition: asked, incident: incident.id, conclusion: conclusion as Schemas["ConclusionIn"] } })),
    placeholderData: keepPreviousData,
  });
  const rule = (): Schemas["RuleIn"] => ({
    type: incident.type as Schemas["RuleIn"]["type"],
    task: "",
    condition,
    conclusion: conclusion as Schemas["ConclusionIn"],
    reference_incident: incident.id,
    description,
    confirmed,
  });
  const path = { level: level as "domain", name };
  const replaying = useMutation({
    mutationFn: () =>
      told(
        api.POST("/v1/rules/{level}/{name}/replay", {
          params: { path },
          body: { since: new Date(Date.now() - DAYS).toISOString(), rules: [rule()], acting: false, most: 20_000, show: 0 },
        }),
      ),
  });
  const adding = useMutation({
    mutationFn: () => told(api.POST("/v1/rules/{level}/{name}", { params: { path }, body: rule() })),
    onSuccess: async (made) => {
      await queries.invalidateQueries({ queryKey: ["rule-set"] });
      await queries.invalidateQueries({ queryKey: ["rule-sets"] });
      go(`/rules/${level}/${name}?rule=${made.rule}&added=1`);
    },
  });
  const launching = useMutation({
    mutationFn: () =>
      told(
        api.POST("/v1/incidents/{incident}/playbook", {
          params: { path: { incident: incident.id } },
          body: kept ? { playbook: kept, text: "" } : { playbook: "", text: JSON.stringify({ forestay: 1, name: "drawn", description, steps }) },
        }),
      ),
    // Not waited for: what was done is told at once, however long it takes to read the incident again.
    onSuccess: () => void queries.invalidateQueries({ queryKey: ["incident"] }),
  });
  const move = (from: number, to: number) =>
    setSteps((before) => {
      const after = [...before];
      const [one] = after.splice(from, 1);
      if (one !== undefined) after.splice(to, 0, one);
      return after;
    });
  const values = Object.entries(checked.data?.values ?? {}).filter(([field]) => field.includes(wanted.trim()));
  const truth = checked.data?.answer ?? (checked.data && checked.data.problems.length > 0 ? "error" : null);
  const wrong = steps.length > 0 || kept ? (checked.data?.conclusion ?? []) : [];
  const ready = truth === "true" && wrong.length === 0 && (steps.length > 0 || kept !== null);
  const drawn = wrong.length === 0 && (steps.length > 0 || kept !== null);
  const overturned = adding.error instanceof Problem && adding.error.status === 409;
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Title order={1}>
          {texts.rules.newRule}: {level}/{name}
        </Title>
        <Anchor component={Link} href={`/incidents/${incident.id}`} fz="sm">
          {texts.rules.reference_incident}: {incident.id.slice(0, 8)}
        </Anchor>
      </Group>
      <Grid gutter="md">
        <Grid.Col span={{ base: 12, md: 7 }}>
          <Stack gap="sm" className="panel" p="md">
            <div>
              <Text fw={600} fz="sm" mb={4}>
                {texts.rules.condition}
              </Text>
              <CelEditor
                label={texts.rules.condition}
                hint={texts.rules.conditionHint}
                value={condition}
                change={setCondition}
                fields={fields.data?.fields ?? []}
                problems={checked.data?.problems ?? []}
              />
              <Group gap="xs" mt={6} role="status" data-truth={truth ?? ""}>
                {truth && (
                  <Badge tt="none" variant="light" color={truth === "true" ? "green" : "red"} c={truth === "true" ? "var(--well)" : "var(--bad)"}>
                    {texts.rules.truth[truth]}
                  </Badge>
                )}
                <Text fz="sm">
                  {checked.data?.problems.map((one) => `${one.line}:${one.column} ${visible(one.detail)}`).join("; ")}
                  {visible(checked.data?.message ?? "")}
                </Text>
              </Group>
              <Text fz="xs" c="dimmed">
                {texts.rules.conditionHint}
              </Text>
            </div>
            <Divider />
            <div>
              <Group justify="space-between" mb={4}>
                <Title order={2}>{texts.rules.conclusion}</Title>
                <Select
                  size="xs"
                  clearable
                  aria-label={texts.rules.kept}
                  placeholder={texts.rules.kept}
                  data={playbooks.data?.playbooks.map((one) => one.name) ?? []}
                  value={kept}
                  onChange={setKept}
                />
              </Group>
              {kept === null && (
                <>
                  <Text fz="sm" c="dimmed" mb={6} id="palette">
                    {texts.rules.palette}
                  </Text>
                  <Group gap={6} role="group" aria-labelledby="palette">
                    {PALETTE.map((step) => (
                      <Button
                        key={stepWords(texts, step)}
                        size="compact-xs"
                        variant="default"
                        leftSection={<IconPlus size={12} aria-hidden />}
                        onClick={() => setSteps((before) => [...before, step])}
                      >
                        {stepWords(texts, step)}
                      </Button>
                    ))}
                  </Group>
                  {steps.length === 0 ? (
                    <Text mt="sm" fz="sm">
                      {texts.rules.noSteps}
                    </Text>
                  ) : (
                    <Stack gap={6} mt="sm">
                      <PlaybookDrawn steps={steps} height={130} />
                      <Stack component="ol" gap={4} m={0} p={0}>
                        {steps.map((step, place) => (
                          <Paper component="li" withBorder px="sm" py={4} key={`${place} ${String(step.action)}`} display="flex">
                            <Group justify="space-between" w="100%" wrap="nowrap">
                              <Text fz="sm">
                                {place + 1}. <StepFields step={step} change={(changed) => setSteps((before) => before.with(place, changed))} />
                              </Text>
                              <Group gap={2} wrap="nowrap">
                                <ActionIcon size="sm" variant="subtle" color="gray" disabled={place === 0} aria-label={texts.rules.stepUp} onClick={() => move(place, place - 1)}>
                                  <IconArrowUp size={14} aria-hidden />
                                </ActionIcon>
                                <ActionIcon size="sm" variant="subtle" color="gray" disabled={place === steps.length - 1} aria-label={texts.rules.stepDown} onClick={() => move(place, place + 1)}>
                                  <IconArrowDown size={14} aria-hidden />
                                </ActionIcon>
                                <ActionIcon size="sm" variant="subtle" color="gray" aria-label={texts.rules.stepAway} onClick={() => setSteps((before) => before.filter((_, n) => n !== place))}>
                                  <IconX size={14} aria-hidden />
                                </ActionIcon>
                              </Group>
                            </Group>
                          </Paper>
                        ))}
                      </Stack>
                    </Stack>
                  )}
                </>
              )}
              {wrong.map((one) => (
                <Text key={one} fz="sm" c="var(--bad)" role="alert" mt={4}>
                  {visible(one)}
                </Text>
              ))}
            </div>
            <Textarea label={texts.rules.description} value={description} onChange={(event) => setDescription(event.currentTarget.value)} autosize minRows={1} maxLength={2000} />
            <ProblemBox problem={adding.error ?? replaying.error ?? launching.error} />
            {overturned && (
              <Checkbox label={texts.rules.confirm} checked={confirmed} onChange={(event) => setConfirmed(event.currentTarget.checked)} />
            )}
            <Group gap="xs">
              <Button variant="default" disabled={!ready} loading={replaying.isPending} onClick={() => replaying.mutate()}>
                {texts.rules.check}
              </Button>
              {operator && !OVER.has(incident.state) && (
                <Button variant="default" disabled={!drawn} loading={launching.isPending} onClick={() => launching.mutate()}>
                  {texts.rules.launchNow}
                </Button>
              )}
              <Button disabled={!ready} loading={adding.isPending} onClick={() => adding.mutate()}>
                {texts.rules.save}
              </Button>
            </Group>
            {launching.data && (
              <Text role="status">
                {texts.rules.launched[launching.data.outcome] ?? launching.data.outcome} {visible(launching.data.detail)}
              </Text>
            )}
            {typeof replaying.data === "object" && <ReplayChart replay={replaying.data} />}
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack gap="xs" className="panel" p="md">
            <Title order={2}>{texts.rules.table}</Title>
            <TextInput size="xs" aria-label={texts.rules.filter} placeholder={texts.rules.filter} value={wanted} onChange={(event) => setWanted(event.currentTarget.value)} />
            <Table fz="sm" verticalSpacing={3} aria-label={texts.rules.table}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th scope="col">{texts.rules.field}</Table.Th>
                  <Table.Th scope="col">{texts.rules.value}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {values.map(([field, value]) => {
                  const text = literal(value);
                  const words = fields.data?.fields.find((one) => one.name === field)?.words ?? "";
                  const plain = typeof value === "string" ? value : JSON.stringify(value);
                  const human = typeof value === "number" ? amount(texts, unitOf(field), value) : plain;
                  const shown = human === plain ? plain : `${human} (${plain})`;
                  return (
                    <Table.Tr key={field}>
                      <Table.Th scope="row" fw={500}>
                        {text === null ? (
                          <Plain text={field} />
                        ) : (
                          <Tooltip label={words} multiline maw={300}>
                            <UnstyledButton
                              className="open-row"
                              fz="xs"
                              ff="monospace"
                              aria-label={texts.rules.addTo(field)}
                              onClick={() => setCondition((before) => (before.trim() ? `${before} && ${field} == ${text}` : `${field} == ${text}`))}
                            >
                              {field}
                            </UnstyledButton>
                          </Tooltip>
                        )}
                      </Table.Th>
                      <Table.Td>
                        <Plain text={shown.length > 160 ? `${shown.slice(0, 160)} …` : shown} />
                      </Table.Td>
                    </Table.Tr>
                  );
                })}
              </Table.Tbody>
            </Table>
          </Stack>
        </Grid.Col>
      </Grid>
    </Stack>
  );
}
