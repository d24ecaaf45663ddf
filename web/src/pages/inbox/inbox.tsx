import { Anchor, Badge, Button, Card, Center, Group, Kbd, Loader, Modal, Stack, Table, Tabs, Text, Title } from "@mantine/core";
import { useDisclosure, useDocumentTitle, useMediaQuery } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { IconCircleCheck } from "../../parts/icons";
import { useCallback, useMemo, useRef } from "react";
import { Link, useLocation, useSearchParams } from "wouter";
import { api, told } from "../../api/client";
import { groupId, type InboxGroup } from "../../api/inbox-group";
import { Ago, hours } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { ErrorState } from "../../parts/error-state";
import { FirstSteps } from "../../parts/first-steps";
import { useKeys } from "../../parts/keys";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";
import { Approvals } from "../error/approvals";
import { Questions, useQuestions } from "../runs/questions";
import { Filters, SINCE, sinceTime, type Listed } from "./filters";

const SHOWN = 100;
const VIEWS = ["attention", "approval", "questions", "recovering", "recovered"] as const;
const KEYS = [
  ["j, k", "step"],
  ["Enter", "open"],
  ["/", "filter"],
  ["?", "help"],
] as const;
/** As the server sorts them. */
const DEAREST = [{ id: "core_hours", desc: true }];
type View = (typeof VIEWS)[number];

/** The error in one line; of a group that was recorded before there were fingerprints why it waits. */
const titleOf = (group: InboxGroup): string => group.title || group.note;

/** The error's own page; of a group that was recorded before there were fingerprints that of its oldest incident. */
const pageOf = (group: InboxGroup): string => (group.fingerprint ? `/errors/${group.fingerprint}` : `/incidents/${group.incident}`);

function Owner({ group }: { group: InboxGroup }) {
  const texts = useTexts();
  return <>{group.owner ? visible(group.owner) : texts.inbox.several(group.owners)}</>;
}

function useOpenWords(): (group: InboxGroup) => string {
  const texts = useTexts();
  const cause = useCause();
  return useCallback(
    (group) => `${texts.inbox.open(cause(group.cause)[0], group.owner || texts.inbox.several(group.owners))}: ${visible(titleOf(group) || cause(group.cause)[1])}`,
    [texts, cause],
  );
}

function ErrorLink({ group }: { group: InboxGroup }) {
  const cause = useCause();
  const openWords = useOpenWords();
  return (
    <Anchor component={Link} href={pageOf(group)} className="open-row clamp" fz="sm" ff="monospace" aria-label={openWords(group)}>
      {visible(titleOf(group) || cause(group.cause)[1])}
    </Anchor>
  );
}

/** Failures of each of the last 24 hours, small enough for a row. */
function Sparkline({ hours }: { hours: number[] | undefined }) {
  const texts = useTexts();
  if (hours === undefined) return null;
  const most = Math.max(1, ...hours);
  const all = hours.reduce((sum, one) => sum + one, 0);
  return (
    <svg viewBox="0 0 96 20" width="96" height="20" role="img" aria-label={texts.error.lately(all)}>
      <line x1="0" y1="19.5" x2="96" y2="19.5" stroke="var(--line)" />
      {hours.map((one, place) => one > 0 && <rect key={place} x={place * 4 + 0.5} width="3" y={19 - Math.max(2, (one / most) * 18)} height={Math.max(2, (one / most) * 18)} fill="var(--chart-5)" />)}
    </svg>
  );
}

type Hours = Record<string, number[]>;

/** Asked for when the list is there, which need not wait for it. */
function useHours(groups: InboxGroup[]): Hours {
  const fingerprint = [...new Set(groups.map((one) => one.fingerprint).filter(Boolean))].sort();
  const hours = useQuery({
    queryKey: ["inbox", "hours", fingerprint],
    queryFn: () => told(api.GET("/v1/errors/hours", { params: { query: { fingerprint } } })),
    enabled: fingerprint.length > 0,
    placeholderData: (before) => before,
    refetchInterval: 60_000,
  });
  return useMemo(() => hours.data?.hours ?? {}, [hours.data]);
}

/** What is said of a group in a word or two: where its error stands, a storm, one host, who has it. */
function Marks({ group }: { group: InboxGroup }) {
  const texts = useTexts();
  return (
    <Group gap={6} mt={4} component="span">
      {group.fingerprint && <ErrorState state={group.state} />}
      {group.storm && (
        <Badge color="orange" variant="light" size="sm" c="var(--ink)" tt="none">
          {texts.inbox.storm}
        </Badge>
      )}
      {group.host && group.count > 1 && (
        <Text span fz="sm" fw={600}>
          {texts.inbox.allOn(visible(group.host))}
        </Text>
      )}
      {group.assignee && (
        <Text span fz="sm" c="dimmed">
          {texts.inbox.taken(visible(group.assignee))}
        </Text>
      )}
    </Group>
  );
}

function useColumns(lately: Hours): Column<InboxGroup>[] {
  const texts = useTexts();
  const cause = useCause();
  return useMemo(
    () => [
      {
        id: "error",
        accessorFn: titleOf,
        header: texts.inbox.error,
        cell: ({ row: { original } }) => (
          <div style={{ maxWidth: 460 }}>
            <ErrorLink group={original} />
            <Marks group={original} />
          </div>
        ),
      },
      {
        id: "lately",
        accessorFn: (one) => lately[one.fingerprint]?.reduce((sum, many) => sum + many, 0) ?? 0,
        header: texts.inbox.lately,
        cell: ({ row: { original } }) => <Sparkline hours={lately[original.fingerprint]} />,
      },
      { accessorKey: "cause", header: texts.inbox.cause, cell: ({ row: { original } }) => cause(original.cause)[0] },
      { id: "owner", accessorFn: (one) => one.owner, header: texts.inbox.owner, cell: ({ row }) => <Owner group={row.original} /> },
      {
        accessorKey: "count",
        header: texts.inbox.number,
        meta: { numbers: true },
        cell: ({ row }) => row.original.count.toLocaleString(texts.language),
      },
      {
        accessorKey: "core_hours",
        header: texts.inbox.hours,
        meta: { numbers: true },
        cell: ({ row }) => hours(texts, row.original.core_hours),
      },
      { accessorKey: "oldest", header: texts.inbox.oldest, cell: ({ row }) => <Ago at={row.original.oldest} /> },
      { accessorKey: "last_seen", header: texts.inbox.last, cell: ({ row }) => <Ago at={row.original.last_seen} /> },
      {
        accessorKey: "waits_for",
        header: texts.inbox.waitsFor,
        cell: ({ row }) => texts.inbox.waits[row.original.waits_for] ?? row.original.waits_for,
      },
    ],
    [texts, cause, lately],
  );
}

function Cards({ groups, lately }: { groups: InboxGroup[]; lately: Hours }) {
  const texts = useTexts();
  const cause = useCause();
  return (
    <Stack gap="xs" component="ul" m={0} p={0}>
      {groups.map((one) => (
        <Card key={groupId(one)} component="li" withBorder p="sm" bg="var(--mantine-color-body)">
          <Group justify="space-between" wrap="nowrap" align="flex-start">
            <ErrorLink group={one} />
            <Text fw={600}>{one.count.toLocaleString(texts.language)}</Text>
          </Group>
          <Group justify="space-between" align="flex-end" wrap="nowrap">
            <Marks group={one} />
            <Sparkline hours={lately[one.fingerprint]} />
          </Group>
          <Text fz="sm" c="dimmed" mt={4}>
            {cause(one.cause)[0]} · <Owner group={one} /> · {hours(texts, one.core_hours)} {texts.inbox.hours.toLowerCase()} · <Ago at={one.last_seen} />
          </Text>
        </Card>
      ))}
    </Stack>
  );
}

function Nothing() {
  const texts = useTexts();
  const newest = useQuery({
    queryKey: ["newest-job"],
    queryFn: () => told(api.GET("/v1/jobs", { params: { query: { limit: 1 } } })),
    refetchInterval: (query) => (query.state.data?.jobs.length === 0 ? 5_000 : false),
  });
  if (newest.data === undefined) return null;
  if (newest.data.jobs.length > 0) {
    return (
      <Center p="xl">
        <Stack align="center" gap="xs" maw={440}>
          <IconCircleCheck size={40} stroke={1.3} color="var(--well)" aria-hidden />
          <Title order={2}>{texts.inbox.nothing}</Title>
          <Text ta="center" c="dimmed">
            {texts.inbox.nothingWords}
          </Text>
        </Stack>
      </Center>
    );
  }
  return <FirstSteps title={texts.inbox.first} words={texts.inbox.firstWords} steps={texts.inbox.firstSteps} />;
}

/** The dearest groups, narrowed by what is named; the server counts, and sends no more than is shown. Rows of another filter are not shown meanwhile. */
function useGroups({ view, cause, owner, host, since: from, snoozed }: Listed) {
  const since = sinceTime(from);
  return useQuery({
    queryKey: ["inbox", view, cause, owner, host, since, snoozed],
    queryFn: () => told(api.GET("/v1/inbox", { params: { query: { view, cause, owner, host, since, snoozed, limit: SHOWN } } })),
    refetchInterval: 30_000,
  });
}

/** What waits for somebody in all, whatever is chosen. */
function useWhole() {
  return useQuery({
    queryKey: ["inbox", "whole"],
    queryFn: () => told(api.GET("/v1/inbox", { params: { query: { limit: 1 } } })),
    refetchInterval: 30_000,
  });
}

/** Steps from error to error, and the list of keys. */
function useInboxKeys(): [boolean, () => void] {
  const [helped, help] = useDisclosure(false);
  const step = useCallback((by: number) => {
    const links = [...document.querySelectorAll<HTMLElement>(".open-row")];
    const at = links.findIndex((one) => one === document.activeElement);
    const next = links[at === -1 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }, []);
  const keys = useMemo(
    () => ({
      j: () => step(1),
      k: () => step(-1),
      "/": () => document.querySelector<HTMLElement>("[data-filter] input")?.focus(),
      "?": help.toggle,
    }),
    [step, help.toggle],
  );
  useKeys(keys);
  return [helped, help.close];
}

function Keys() {
  const texts = useTexts();
  const [helped, close] = useInboxKeys();
  return (
    <Modal opened={helped} onClose={close} title={texts.inbox.keys} closeButtonProps={{ "aria-label": texts.app.close }}>
      <Table withRowBorders={false} aria-label={texts.inbox.keys}>
        <Table.Tbody>
          {KEYS.map(([key, does]) => (
            <Table.Tr key={key}>
              <Table.Th scope="row" w={90}>
                <Kbd>{key}</Kbd>
              </Table.Th>
              <Table.Td>{texts.inbox.keyWords[does]}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  );
}

/** What waits, by error. The view and the filters stand in the address, so that a list can be sent, and Back finds it again. */
export default function Inbox() {
  const texts = useTexts();
  const narrow = useMediaQuery("(max-width: 48em)") ?? false;
  const [, navigate] = useLocation();
  const [search, setSearch] = useSearchParams();
  const view: View = VIEWS.find((one) => one === search.get("view")) ?? "attention";
  const asks = view === "questions";
  const asked: Listed = {
    view: asks ? "attention" : view,
    cause: search.get("cause") ?? "",
    owner: search.get("owner") ?? "",
    host: search.get("host") ?? "",
    since: SINCE.find((one) => one === search.get("since")) ?? "",
    snoozed: search.get("snoozed") === "show" ? "show" : "hide",
  };
  const ask = (field: string, value: string | null) =>
    setSearch((before) => {
      const after = new URLSearchParams(before);
      if (value) after.set(field, value);
      else after.delete(field);
      return after;
    });
  const whole = useWhole();
  const later = view === "recovering" || view === "recovered";
  const inbox = useGroups(asked);
  const questions = useQuestions();
  const groups = asks ? [] : (inbox.data?.groups ?? []);
  const lately = useHours(groups);
  const columns = useColumns(lately);
  const count = whole.data?.count ?? 0;
  const approvals = whole.data?.approvals ?? 0;
  const numbers: Partial<Record<View, number>> = { attention: (whole.data?.many ?? 0) - approvals, approval: approvals, questions: questions.data?.questions.length ?? 0 };
  const hidden = useRef(0);
  if (asked.snoozed === "hide" && inbox.data !== undefined) hidden.current = inbox.data.snoozed;
  useDocumentTitle(`${count > 0 ? `(${count.toLocaleString(texts.language)}) ` : ""}${texts.inbox.title} · Forestay`);
  const empty = whole.data !== undefined && whole.data.many === 0 && whole.data.snoozed === 0 && view === "attention";
  return (
    <Stack gap="sm" maw={1280}>
      <div>
        <Title order={1}>{texts.inbox.title}</Title>
        {inbox.data !== undefined && view === "attention" && groups.length > 0 && (
          <Text c="dimmed" aria-live="polite">
            {texts.inbox.summary(inbox.data.count, inbox.data.many, hours(texts, inbox.data.core_hours))} {inbox.data.more && texts.inbox.more(groups.length)}
          </Text>
        )}
      </div>
      {!!whole.data?.held_runs && (
        <Anchor component={Link} href="/runs?state=suspended,held" fz="sm" underline="always" style={{ alignSelf: "flex-start" }}>
          {texts.runs.heldRuns(whole.data.held_runs)}
        </Anchor>
      )}
      <Tabs value={view} activateTabWithKeyboard={false} onChange={(value) => ask("view", value === "attention" ? null : value)}>
        <Tabs.List aria-label={texts.inbox.title}>
          {VIEWS.map((one) => (
            <Tabs.Tab
              key={one}
              value={one}
              rightSection={
                numbers[one] ? (
                  <Badge size="sm" variant="light" c="var(--ink)">
                    {numbers[one].toLocaleString(texts.language)}
                  </Badge>
                ) : null
              }
            >
              {texts.inbox.views[one]}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value={view} pt="sm">
          <Stack gap="sm">
            {!empty && view !== "approval" && !asks && <Filters filter={asked} ask={ask} narrow={narrow} />}
            {view === "approval" && approvals > 0 && <Approvals focus />}
            {asks && <Questions focus />}
            <ProblemBox problem={inbox.error} />
            {inbox.isPending && <Loader size="sm" aria-label={texts.app.loading} />}
            {empty && (
              <div className="panel">
                <Nothing />
              </div>
            )}
            {!empty && !asks && inbox.data !== undefined && groups.length === 0 && <Text c="dimmed">{texts.inbox.none}</Text>}
            {groups.length > 0 &&
              (narrow ? (
                <Cards groups={groups} lately={lately} />
              ) : (
                <div className="panel">
                  <Rows caption={texts.inbox.title} columns={columns} rows={groups} idOf={groupId} openRow={(one) => navigate(pageOf(one))} first={DEAREST} />
                </div>
              ))}
            {!later && !asks && hidden.current > 0 && (
              <Button
                variant="subtle"
                size="xs"
                style={{ alignSelf: "flex-start" }}
                onClick={() => ask("snoozed", asked.snoozed === "show" ? null : "show")}
              >
                {asked.snoozed === "show" ? texts.inbox.hideSnoozed : texts.inbox.snoozed(hidden.current)}
              </Button>
            )}
          </Stack>
        </Tabs.Panel>
      </Tabs>
      <Keys />
    </Stack>
  );
}
