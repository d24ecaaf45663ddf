import { Button, Group, Select, SimpleGrid, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, told } from "../../api/client";
import { useCause } from "../../parts/cause";
import { visible } from "../../parts/plain";
import { useTexts } from "../../texts/texts";

export const SINCE = ["hour", "day", "yesterday", "week"] as const;
export type Since = (typeof SINCE)[number];

/** What the list is narrowed to; each stands in the address. */
export interface Filter {
  cause: string;
  owner: string;
  host: string;
  since: Since | "";
}

/** What is listed: the part of the inbox, narrowed. */
export interface Listed extends Filter {
  view: "attention" | "approval" | "recovering" | "recovered";
  snoozed: "hide" | "show";
}

const HOUR = 3_600_000;
const MINUTE = 60_000;
const AGO: Record<Exclude<Since, "yesterday">, number> = { hour: HOUR, day: 24 * HOUR, week: 7 * 24 * HOUR };
/** Hosts are what is asked for most: where something fails. */
const SHOWN = { cause: 7, owner: 6, host: 10 };

/** The time from which on; yesterday begins at midnight here. The same for a minute, so that an answer may be kept. */
export function sinceTime(since: Since | ""): string {
  if (since === "") return "";
  if (since !== "yesterday") return new Date(Math.floor((Date.now() - AGO[since]) / MINUTE) * MINUTE).toISOString();
  const now = new Date();
  return new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1).toISOString();
}

/** How many the list has of each, whatever is chosen of it itself: so another one can be chosen. */
function useCounts({ cause, owner, host, since: from, view, snoozed }: Listed) {
  const asked = { cause, owner, host, since: sinceTime(from), view, snoozed };
  const counts = useQuery({
    queryKey: ["inbox", "counts", asked],
    queryFn: () => told(api.GET("/v1/inbox/counts", { params: { query: asked } })),
    placeholderData: (before) => before,
    refetchInterval: 30_000,
  });
  return (by: "cause" | "owner" | "host") => Object.entries(counts.data?.[by] ?? {}).filter(([value]) => value !== "");
}

interface Given {
  label: string;
  any: string;
  values: { value: string; label: string; count?: number }[];
  shown: number;
  chosen: string;
  choose(value: string | null): void;
  narrow: boolean;
}

/** The most frequent values, one click each, with their numbers; all of them in a list. */
function Facet({ label, any, values, shown, chosen, choose, narrow }: Given) {
  const texts = useTexts();
  const number = (n: number) => n.toLocaleString(texts.language);
  const known = chosen && !values.some((one) => one.value === chosen) ? [{ value: chosen, label: visible(chosen), count: 0 }, ...values] : values;
  const list = (
    <Select
      size="xs"
      w={narrow ? undefined : 150}
      clearable
      searchable={values.length > shown}
      aria-label={label}
      placeholder={any}
      data={known.map((one) => ({ value: one.value, label: one.count === undefined ? one.label : `${one.label} (${number(one.count)})` }))}
      value={chosen || null}
      onChange={choose}
    />
  );
  if (narrow) return list;
  return (
    <Group gap={6} role="group" aria-label={label}>
      {list}
      {values.slice(0, shown).map((one) => (
        <Button
          key={one.value}
          size="compact-xs"
          variant={one.value === chosen ? "filled" : "default"}
          aria-pressed={one.value === chosen}
          data-value={one.value}
          fw={500}
          onClick={() => choose(one.value === chosen ? null : one.value)}
        >
          {one.label}
          {one.count !== undefined && <> {number(one.count)}</>}
        </Button>
      ))}
    </Group>
  );
}

/** Narrows the list by cause, owner, host and time, and says how many failures there are of each. */
export function Filters({ filter, ask, narrow }: { filter: Listed; ask(field: string, value: string | null): void; narrow: boolean }) {
  const texts = useTexts();
  const cause = useCause();
  const counts = useCounts(filter);
  const causes = counts("cause").map(([value, count]) => ({ value, label: cause(value)[0], count }));
  const owners = counts("owner").map(([value, count]) => ({ value, label: visible(value), count }));
  const hosts = counts("host").map(([value, count]) => ({ value, label: visible(value), count }));
  const times = SINCE.map((value) => ({ value, label: texts.inbox.sinces[value] }));
  const facets = {
    cause: <Facet label={texts.inbox.cause} any={texts.inbox.anyCause} values={causes} shown={SHOWN.cause} chosen={filter.cause} choose={(value) => ask("cause", value)} narrow={narrow} />,
    owner: <Facet label={texts.inbox.owner} any={texts.inbox.anyOwner} values={owners} shown={SHOWN.owner} chosen={filter.owner} choose={(value) => ask("owner", value)} narrow={narrow} />,
    since: <Facet label={texts.inbox.since} any={texts.inbox.anyTime} values={times} shown={SINCE.length} chosen={filter.since} choose={(value) => ask("since", value)} narrow={narrow} />,
    host: <Facet label={texts.inbox.host} any={texts.inbox.anyHost} values={hosts} shown={SHOWN.host} chosen={filter.host} choose={(value) => ask("host", value)} narrow={narrow} />,
  };
  if (narrow) {
    return (
      <SimpleGrid cols={2} spacing="xs" verticalSpacing="xs" data-filter>
        {facets.cause}
        {facets.owner}
        {facets.since}
        {facets.host}
      </SimpleGrid>
    );
  }
  return (
    <Stack gap={6} data-filter>
      {facets.cause}
      <Group gap="6px 24px">
        {facets.owner}
        {facets.since}
      </Group>
      {facets.host}
    </Stack>
  );
}
