import { Button, Group, Modal, NativeSelect, Paper, Select, Stack, Text, TextInput, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { IconPencilPlus } from "../../parts/icons";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { StepFields } from "../../parts/step-fields";
import type { Step } from "../../parts/step-words";
import { useTexts } from "../../texts/texts";

type Whole = Schemas["IncidentWholeOut"];
type JobOut = Schemas["JobOut"];
const OVER = new Set(["complete", "ignored", "failed"]);
const NEEDS = ["memory", "wall", "disk"] as const;
type Need = (typeof NEEDS)[number];
/** The need that a cause is a lack of. */
const LACKS: Record<string, Need> = { memory: "memory", time: "wall", disk: "disk" };
const LEAST: Record<Need, number> = { memory: 64 * 2 ** 30, wall: 7 * 86_400, disk: 2 ** 40 };

/** Twice as much, with a bound that leaves room for it. */
function more(job: JobOut, need: Need): Step {
  const asked = job.resources[need] ?? 0;
  return { action: "resubmit", how: "changed", needs: { [need]: { factor: 2, at_most: Math.max(LEAST[need], 4 * asked) } } };
}

/** Carries steps out for one incident; both pages of a failure read it again afterwards. */
function useLaunch(incident: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (body: Schemas["LaunchIn"]) => told(api.POST("/v1/incidents/{incident}/playbook", { params: { path: { incident } }, body })),
    onSuccess: () => Promise.all([queries.invalidateQueries({ queryKey: ["incident"] }), queries.invalidateQueries({ queryKey: ["job"] })]),
  });
}

function More({ job, incident }: { job: JobOut; incident: Whole }) {
  const texts = useTexts();
  const [need, setNeed] = useState(LACKS[incident.cause] ?? "memory");
  const [step, setStep] = useState(() => more(job, need));
  const launching = useLaunch(incident.id);
  return (
    <Paper withBorder p="xs">
      <Stack gap="xs">
        <NativeSelect
          size="xs"
          label={texts.jobs.more}
          value={need}
          onChange={(event) => {
            const chosen = event.currentTarget.value as Need;
            setNeed(chosen);
            setStep(more(job, chosen));
          }}
          data={NEEDS.map((one) => ({ value: one, label: texts.steps.amounts[one] ?? one }))}
        />
        <StepFields key={need} step={step} change={setStep} />
        <ProblemBox problem={launching.error} />
        <Button
          size="xs"
          variant={need === LACKS[incident.cause] ? "filled" : "default"}
          loading={launching.isPending}
          onClick={() => launching.mutate({ playbook: "", text: JSON.stringify({ forestay: 1, name: "more", steps: [step] }) })}
        >
          {texts.jobs.moreIt}
        </Button>
        {launching.data && (
          <Text fz="sm" role="status">
            {texts.jobs.moreDone[launching.data.outcome] ?? launching.data.outcome} {visible(launching.data.detail)}
          </Text>
        )}
      </Stack>
    </Paper>
  );
}

function GiveUp({ job }: { job: JobOut }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const [asking, ask] = useDisclosure(false);
  const [reason, setReason] = useState("");
  const cancelling = useMutation({
    mutationFn: () => told(api.POST("/v1/jobs/{job}/cancel", { params: { path: { job: job.id } }, body: { reason } })),
    onSuccess: async () => {
      ask.close();
      await Promise.all([queries.invalidateQueries({ queryKey: ["job"] }), queries.invalidateQueries({ queryKey: ["incident"] })]);
    },
  });
  return (
    <>
      <Button variant="default" onClick={ask.open}>
        {texts.jobs.giveUp}
      </Button>
      <Modal opened={asking} onClose={ask.close} title={texts.jobs.giveUp} closeButtonProps={{ "aria-label": texts.app.close }}>
        <Stack>
          <Text fz="sm">{texts.jobs.giveUpWords}</Text>
          <TextInput data-autofocus label={texts.inbox.reason} value={reason} maxLength={500} onChange={(event) => setReason(event.currentTarget.value)} />
          <ProblemBox problem={cancelling.error} />
          <Group>
            <Button color="red" loading={cancelling.isPending} onClick={() => cancelling.mutate()}>
              {texts.jobs.giveUp}
            </Button>
            <Button variant="default" onClick={ask.close}>
              {texts.app.cancel}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}

function Launch({ incident, close }: { incident: Whole; close(): void }) {
  const texts = useTexts();
  const [name, setName] = useState<string | null>(null);
  const playbooks = useQuery({ queryKey: ["playbooks"], queryFn: () => told(api.GET("/v1/playbooks")) });
  const launching = useLaunch(incident.id);
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
        <Button disabled={name === null} loading={launching.isPending} onClick={() => launching.mutate({ playbook: name ?? "", text: "" }, { onSuccess: close })}>
          {texts.incident.launch}
        </Button>
        <Button variant="default" onClick={close}>
          {texts.app.cancel}
        </Button>
      </Group>
    </Stack>
  );
}

/** What can be done about a failure: on its job, by steps for it alone, or by a rule for all like it. */
export function Acts({ incident, job }: { incident: Whole; job?: JobOut }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const { subject } = useSession();
  const author = useMay("rule-author");
  const operator = useMay("operator");
  const submitter = useMay("submitter");
  const [launching, launch] = useDisclosure(false);
  const retrying = useMutation({
    mutationFn: (name: string) => told(api.POST("/v1/jobs/{job}/retry", { params: { path: { job: name } }, body: { reason: "" } })),
    onSuccess: () => Promise.all([queries.invalidateQueries({ queryKey: ["job"] }), queries.invalidateQueries({ queryKey: ["incident"] })]),
  });
  // Only the failure that the job stands at can be answered, not an earlier one.
  const failed = job?.state === "faulted" && job.attempt === incident.attempt ? job : undefined;
  const open = operator && !OVER.has(incident.state);
  if (!author && !open && failed === undefined) return null;
  return (
    <section aria-labelledby="acts">
      <Stack gap="xs" align="stretch">
        <Title order={2} id="acts">
          {texts.incident.acts}
        </Title>
        <ProblemBox problem={retrying.error} />
        {operator && failed && (
          <Button variant={incident.cause in LACKS ? "default" : "filled"} loading={retrying.isPending} onClick={() => retrying.mutate(failed.id)}>
            {texts.jobs.retry}
          </Button>
        )}
        {open && failed && <More key={incident.id} job={failed} incident={incident} />}
        {failed && (operator || (submitter && failed.owner === subject)) && <GiveUp job={failed} />}
        {open && (
          <Button variant="default" onClick={launch.open}>
            {texts.incident.launch}
          </Button>
        )}
        {author && (
          <Button variant="default" component={Link} href={`/rules/domain/site?from=${incident.id}`} leftSection={<IconPencilPlus size={16} aria-hidden />}>
            {texts.incident.write}
          </Button>
        )}
      </Stack>
      <Modal opened={launching} onClose={launch.close} title={texts.incident.launch} closeButtonProps={{ "aria-label": texts.app.close }}>
        <Launch incident={incident} close={launch.close} />
      </Modal>
    </section>
  );
}
