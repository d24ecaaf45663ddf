import { Anchor, Badge, Button, Checkbox, Group, Modal, Paper, Radio, Select, Stack, Text, Textarea, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import type { InboxGroup } from "../../api/inbox-group";

type Act = Schemas["ActOut"];
type Reach = Act["reach"];
type Remedy = Act["do"];
const NEXT: Record<Reach, Reach> = { one: "ten", ten: "all", all: "all" };

function Outcome({ act }: { act: Act }) {
  const texts = useTexts();
  // Those that fail come first: of many only the first are named.
  const members = [...act.members].sort((one, other) => Number(other.fate === "bad") - Number(one.fate === "bad"));
  return (
    <Paper withBorder p="sm" role="status" data-act={act.reach}>
      <Group gap="xs">
        <Text fw={600} fz="sm">
          {texts.inbox.tried(texts.inbox.reach[act.reach])}
        </Text>
        {act.well > 0 && (
          <Badge variant="light" color="green" c="var(--well)" tt="none">
            {texts.inbox.well(act.well)}
          </Badge>
        )}
        {act.bad > 0 && (
          <Badge variant="light" color="red" c="var(--bad)" tt="none">
            {texts.inbox.bad(act.bad)}
          </Badge>
        )}
        {act.pending > 0 && (
          <Badge variant="light" color="gray" c="var(--ink)" tt="none">
            {texts.inbox.pending(act.pending)}
          </Badge>
        )}
      </Group>
      <Group gap="sm" mt={4}>
        {members.slice(0, 10).map((one) => (
          <span key={one.incident}>
            <Anchor component={Link} href={`/incidents/${one.incident}`} fz="sm" ff="monospace" c={one.fate === "bad" ? "var(--bad)" : undefined}>
              {one.job.slice(0, 8) || one.incident.slice(0, 8)}
            </Anchor>
            {one.detail && (
              <Text span fz="sm" c="var(--bad)">
                {" "}
                {visible(one.detail)}
              </Text>
            )}
          </span>
        ))}
      </Group>
    </Paper>
  );
}

/** One, then ten, then all: the next step is offered when the last one went well. */
export function GroupActs({ group }: { group: InboxGroup }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const may = useMay("operator");
  const [remedy, setRemedy] = useState<Remedy>("retry");
  const [playbook, setPlaybook] = useState<string | null>(null);
  const [reason, setReason] = useState("");
  const [anyway, setAnyway] = useState(false);
  const [done, setDone] = useState<Act[]>([]);
  const [canary, setCanary] = useState(false);
  const [unsure, setUnsure] = useState<Reach | "group" | null>(null);
  const last = done.at(-1);
  const playbooks = useQuery({ queryKey: ["playbooks"], queryFn: () => told(api.GET("/v1/playbooks")), enabled: may });
  const followed = useQuery({
    queryKey: ["act", last?.id],
    queryFn: () => told(api.GET("/v1/inbox/acts/{act}", { params: { path: { act: last?.id ?? "" } } })),
    enabled: last !== undefined,
    refetchInterval: (query) => (query.state.data === undefined || query.state.data.pending > 0 ? 1_500 : false),
  });
  const current = followed.data ?? last;
  const acting = useMutation({
    mutationFn: (reach: Reach) =>
      told(
        api.POST("/v1/inbox/acts", {
          body: {
            fingerprint: group.fingerprint, cause: group.cause, owner: group.owner, do: remedy, playbook: remedy === "playbook" ? (playbook ?? "") : "", reach,
            after: last?.id ?? "", anyway, reason,
          },
        }),
      ),
    onSuccess: (act) => {
      setDone((before) => [...before.map((one) => (one.id === current?.id && current ? current : one)), act]);
      setAnyway(false);
      void queries.invalidateQueries({ queryKey: ["inbox"] });
      void queries.invalidateQueries({ queryKey: ["members"] });
    },
  });
  // The next step of a canary follows when all of the last one have succeeded; it is asked for once.
  const next = canary && followed.data !== undefined && followed.data.id === last?.id && followed.data.pending === 0 ? followed.data.next : null;
  const stopped = canary && followed.data !== undefined && (followed.data.bad > 0 || followed.data.whole);
  const { mutate } = acting;
  useEffect(() => {
    if (next !== null) mutate(next);
  }, [next, last?.id, mutate]);
  useEffect(() => {
    if (stopped || acting.isError) setCanary(false);
  }, [stopped, acting.isError]);
  if (!may) return <Text c="dimmed">{texts.app.ofRole("operator")}</Text>;
  const step: Reach = current === undefined ? "one" : (current.next ?? NEXT[current.reach]);
  const over = current !== undefined && current.whole;
  // A job that failed in one step may have succeeded in a later one.
  const fates = new Map([...done.slice(0, -1), ...(current ? [current] : [])].flatMap((act) => act.members).map((one) => [one.job || one.incident, one.fate]));
  const failed = [...fates.values()].filter((fate) => fate === "bad").length;
  const ready = reason.trim() !== "" && (remedy !== "playbook" || playbook !== null);
  const allowed = current === undefined || current.next !== null || anyway;
  const cancels = remedy === "cancel";
  const labelOf = (what: Reach | "group"): string => {
    if (what === "group") return cancels ? texts.inbox.cancelAll(group.count) : texts.inbox.canaryAll(group.count);
    return cancels ? texts.inbox.cancelSome[what] : texts.inbox.doIt[what];
  };
  const begin = (what: Reach | "group") => {
    setUnsure(null);
    setCanary(what === "group");
    acting.mutate(what === "group" ? "one" : what);
  };
  // What cannot be undone is asked for twice.
  const want = (what: Reach | "group") => (cancels ? setUnsure(what) : begin(what));
  return (
    <section aria-labelledby="acts">
      <Stack gap="sm">
        <Title order={2} id="acts">
          {texts.inbox.acts}
        </Title>
        <Radio.Group value={remedy} onChange={(value) => setRemedy(value as Remedy)} aria-labelledby="acts">
          <Stack gap={6}>
            <Radio disabled={current !== undefined} value="retry" label={texts.inbox.retry} description={texts.inbox.retryWords} />
            <Radio
              disabled={current !== undefined || (playbooks.data?.playbooks.length ?? 0) === 0}
              value="playbook"
              label={texts.inbox.playbook}
              description={playbooks.data?.playbooks.length === 0 ? texts.inbox.noPlaybooks : texts.inbox.playbookWords}
            />
            {remedy === "playbook" && (
              <Select
                aria-label={texts.inbox.playbook}
                disabled={current !== undefined}
                data={playbooks.data?.playbooks.map((one) => one.name) ?? []}
                value={playbook}
                onChange={setPlaybook}
                ml={28}
              />
            )}
            <Radio disabled={current !== undefined} value="cancel" label={texts.inbox.cancel} description={texts.inbox.cancelWords} />
          </Stack>
        </Radio.Group>
        <Textarea
          label={texts.inbox.reason}
          description={texts.inbox.reasonHint}
          required
          autosize
          minRows={1}
          maxLength={500}
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
        />
        {done.slice(0, -1).map((one) => (
          <Outcome key={one.id} act={one} />
        ))}
        {current && <Outcome act={current} />}
        {over ? (
          <Text fw={600} role="status">
            {current.pending > 0 ? texts.inbox.appliedAll(current.pending) : failed > 0 ? texts.inbox.finishedBad(failed) : texts.inbox.finished}
          </Text>
        ) : (
          <>
            {current !== undefined && current.not_yet !== "" && (
              <Text fz="sm" role="status">
                {visible(current.not_yet)}
              </Text>
            )}
            {current !== undefined && current.bad > 0 && (
              <Checkbox label={texts.inbox.anyway} checked={anyway} onChange={(event) => setAnyway(event.currentTarget.checked)} />
            )}
            <ProblemBox problem={acting.error} />
            {canary && (
              <Text fz="sm" role="status">
                {texts.inbox.canaryGoes}
              </Text>
            )}
            <Group gap="xs">
              {canary ? (
                <Button variant="default" onClick={() => setCanary(false)}>
                  {texts.inbox.canaryStop}
                </Button>
              ) : (
                <>
                  {current === undefined && group.count > 1 && (
                    <Button
                      disabled={!ready}
                      loading={acting.isPending}
                      onClick={() => want("group")}
                    >
                      {labelOf("group")}
                    </Button>
                  )}
                  <Button
                    variant={current === undefined && group.count > 1 ? "default" : "filled"}
                    disabled={!ready || !allowed}
                    loading={acting.isPending}
                    onClick={() => want(step)}
                  >
                    {labelOf(step)}
                  </Button>
                  {current !== undefined && (
                    <Button variant="default" onClick={() => setDone([])}>
                      {texts.inbox.again}
                    </Button>
                  )}
                </>
              )}
            </Group>
            <Text fz="sm" c="dimmed">
              {group.count > 1 && !cancels ? texts.inbox.canaryWords : texts.inbox.stepOne}
            </Text>
          </>
        )}
      </Stack>
      <Modal opened={unsure !== null} onClose={() => setUnsure(null)} title={unsure && labelOf(unsure)} closeButtonProps={{ "aria-label": texts.app.close }} centered>
        <Stack gap="sm">
          <Text fz="sm">{texts.inbox.cancelSure}</Text>
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={() => setUnsure(null)}>
              {texts.inbox.keep}
            </Button>
            <Button color="red.9" onClick={() => unsure && begin(unsure)}>
              {unsure && labelOf(unsure)}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </section>
  );
}
