import { Anchor, Badge, Button, Grid, Group, Loader, Modal, Select, Stack, Text, Title } from "@mantine/core";
import { useDisclosure, useDocumentTitle } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { Ago } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { PlaybookDrawn, type Step } from "../../parts/playbook";
import { IconPencilPlus } from "../../parts/icons";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { Evidence, FactTable } from "./evidence";
import { Path } from "./path";
import { Story } from "./story";

type Whole = Schemas["IncidentWholeOut"];
const OVER = new Set(["complete", "ignored", "failed"]);

function Launch({ incident, close }: { incident: Whole; close(): void }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const [name, setName] = useState<string | null>(null);
  const playbooks = useQuery({ queryKey: ["playbooks"], queryFn: () => told(api.GET("/v1/playbooks")) });
  const launching = useMutation({
    mutationFn: () =>
      told(
        api.POST("/v1/incidents/{incident}/playbook", {
          params: { path: { incident: incident.id } },
          body: { playbook: name ?? "", text: "" },
        }),
      ),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["incident"] });
      close();
    },
  });
  return (
    <Stack>
      <Select
        label={texts.incident.drawn}
        data={playbooks.data?.playbooks.map((one) => one.name) ?? []}
        value={name}
        onChange={setName}
        description={playbooks.data?.playbooks.length === 0 ? texts.inbox.noPlaybooks : playbooks.data?.playbooks.find((one) => one.name === name)?.description}
      />
      <ProblemBox problem={launching.error} />
      <Group>
        <Button disabled={name === null} loading={launching.isPending} onClick={() => launching.mutate()}>
          {texts.incident.launch}
        </Button>
        <Button variant="default" onClick={close}>
          {texts.app.cancel}
        </Button>
      </Group>
    </Stack>
  );
}

function Decided({ incident }: { incident: Whole }) {
  const texts = useTexts();
  const last = incident.decisions.findLast((one) => one.playbook !== null) ?? incident.decisions.at(-1);
  const states = useMemo(
    () => new Map(incident.steps.filter((one) => one.n === last?.n).map((one) => [one.step, one.state])),
    [incident, last],
  );
  const steps = useMemo(() => ((last?.playbook as { steps?: Step[] } | null | undefined)?.steps ?? []) as Step[], [last]);
  if (last === undefined) return null;
  return (
    <section aria-labelledby="decided">
      <Title order={2} id="decided">
        {texts.incident.decision}
      </Title>
      <Text fz="sm" mb="xs">
        <b>{visible(last.by)}</b>: {visible(typeof last.detail.words === "string" ? last.detail.words : last.verdict)}
      </Text>
      {steps.length > 0 ? <PlaybookDrawn steps={steps} states={states} /> : <Text fz="sm">{texts.incident.noSteps}</Text>}
    </section>
  );
}

export default function Incident({ incident }: { incident: string }) {
  const texts = useTexts();
  const cause = useCause();
  const author = useMay("rule-author");
  const operator = useMay("operator");
  const [launching, launch] = useDisclosure(false);
  const found = useQuery({
    queryKey: ["incident", incident],
    queryFn: () => told(api.GET("/v1/incidents/{incident}", { params: { path: { incident } } })),
  });
  const whole = found.data;
  useDocumentTitle(`${whole ? texts.incident.title(cause(whole.cause)[0]) : texts.pages.incident} · Forestay`);
  if (whole === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  const facts = {
    [texts.incident.owner]: whole.owner,
    [texts.incident.attempt]: whole.attempt || null,
    [texts.incident.job]: whole.job || null,
    [texts.incident.run]: whole.run ? `${whole.run}${whole.task ? `, ${whole.task}` : ""}` : null,
    [texts.rules.type]: whole.type,
  };
  return (
    <Stack gap="md" maw={1280}>
      <Group justify="space-between" align="flex-start">
        <div>
          <Anchor component={Link} href="/inbox" fz="sm">
            ← {texts.pages.inbox}
          </Anchor>
          <Title order={1}>{texts.incident.title(cause(whole.cause)[0])}</Title>
          <Group gap="xs">
            <Badge variant="light" color={whole.state === "held" ? "orange" : "gray"} c="var(--ink)" tt="none">
              {texts.incident.states[whole.state] ?? whole.state}
            </Badge>
            <Text fz="sm" c="dimmed">
              <Ago at={whole.at} />
            </Text>
          </Group>
          {whole.note && (
            <Text fz="sm" mt={4} maw={760}>
              {visible(whole.note)}
            </Text>
          )}
        </div>
        <Group gap="xs">
          {operator && !OVER.has(whole.state) && (
            <Button variant="default" onClick={launch.open}>
              {texts.incident.launch}
            </Button>
          )}
          {author && (
            <Button component={Link} href={`/rules/domain/site?from=${whole.id}`} leftSection={<IconPencilPlus size={16} aria-hidden />}>
              {texts.incident.write}
            </Button>
          )}
        </Group>
      </Group>
      <Grid gutter="lg">
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack gap="md" className="panel" p="md">
            <FactTable facts={facts} caption={texts.pages.incident} />
            <Group gap="md">
              {whole.job && (
                <Anchor component={Link} href={`/jobs/${whole.job}`} fz="sm">
                  {texts.incident.job}
                </Anchor>
              )}
              {whole.run && whole.engine === "forestay" && (
                <Anchor component={Link} href={`/runs/${whole.run}`} fz="sm">
                  {texts.incident.run}
                </Anchor>
              )}
            </Group>
            <Evidence incident={whole} />
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 7 }}>
          <Stack gap="md" className="panel" p="md">
            <Path incident={whole} />
            <Decided incident={whole} />
            <Story incident={whole} />
          </Stack>
        </Grid.Col>
      </Grid>
      <Modal opened={launching} onClose={launch.close} title={texts.incident.launch} closeButtonProps={{ "aria-label": texts.app.close }}>
        <Launch incident={whole} close={launch.close} />
      </Modal>
    </Stack>
  );
}
