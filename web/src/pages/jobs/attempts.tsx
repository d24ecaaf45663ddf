import { Anchor, Progress, Table, Text, Title, VisuallyHidden } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { Schemas } from "../../api/client";
import { Ago } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { visible } from "../../parts/plain";
import { amount, type Unit } from "../../parts/units";
import type { Texts } from "../../texts/en";
import { useTexts } from "../../texts/texts";

type Whole = Schemas["IncidentWholeOut"];
type Ending = Schemas["EndingOut"];
type Needs = Pick<Schemas["ResourcesOut"], "cpus" | "memory" | "wall">;

/** One attempt of a job: how it ended, and the failure that it was. */
export interface Attempt {
  number: number;
  host: string;
  ending: Ending | null;
  running: boolean;
  /** What it had asked for; null: nobody knows any more. */
  asked: Needs | null;
  incident: Whole | null;
  at: string | null;
}

export const SHOWN = 10;

/** The newest attempts of a job, the last one first. */
export function attemptsOf(job: Schemas["JobOut"], story: Schemas["StoryOut"] | undefined, incidents: readonly Whole[]): Attempt[] {
  const ended = new Map<number, [Ending, string]>();
  for (const one of story?.evidence ?? []) {
    const ending = (one as { ending?: Ending | null }).ending;
    if (one.kind === "evidence" && ending) ended.set(ending.attempt, [ending, one.at]);
  }
  if (job.last) ended.set(job.last.attempt, [job.last, ended.get(job.last.attempt)?.[1] ?? job.changed]);
  const failures = new Map(incidents.filter((one) => one.type === "abort").map((one) => [one.attempt, one]));
  return Array.from({ length: Math.min(job.attempt, SHOWN) }, (_, place) => {
    const number = job.attempt - place;
    const [ending = null, at = null] = ended.get(number) ?? [];
    const incident = failures.get(number) ?? null;
    const before = (incident?.context.job as { resources?: Needs } | undefined)?.resources;
    const running = job.claim !== null && place === 0;
    const line = story?.story.findLast((one) => one.attempt === number);
    return {
      number,
      host: (running ? job.claim?.host : ending?.host) ?? "",
      ending,
      running,
      asked: before ?? (place === 0 ? job.resources : null),
      incident,
      at: at ?? line?.at ?? null,
    };
  });
}

function resultOf(texts: Texts, attempt: Attempt): string {
  const { ending } = attempt;
  if (attempt.running) return texts.jobs.states.running ?? "";
  if (ending === null) return texts.jobs.lost;
  if (ending.outcome === "ok") return texts.jobs.succeeded;
  if (typeof ending.signal === "number") return texts.jobs.signal(ending.signal);
  return typeof ending.exit_code === "number" ? texts.jobs.exit(ending.exit_code) : visible(ending.reason);
}

/** What was used beside what was asked for. */
function Used({ used, asked, unit, label }: { used: number | null | undefined; asked: number | null | undefined; unit: Unit; label: string }) {
  const texts = useTexts();
  const known = typeof used === "number";
  const bound = typeof asked === "number" && asked > 0;
  if (!known) return bound ? <Text fz="sm" c="dimmed">{texts.jobs.asked(amount(texts, unit, asked))}</Text> : <>–</>;
  if (!bound) return <>{amount(texts, unit, used)}</>;
  const words = texts.jobs.of(amount(texts, unit, used), amount(texts, unit, asked));
  return (
    <>
      <Text fz="sm">{words}</Text>
      <Progress value={Math.min(100, (100 * used) / asked)} color={used >= 0.95 * asked ? "red" : undefined} aria-label={`${label}: ${words}`} />
    </>
  );
}

interface Given {
  attempts: Attempt[];
  /** How many there were in all. */
  count: number;
  chosen: number;
  /** Where one of them is shown. */
  place(attempt: number): string;
}

/** The attempts below each other; what is not as it was the time before is marked. */
export function Attempts({ attempts, count, chosen, place }: Given) {
  const texts = useTexts();
  const cause = useCause();
  const words = texts.jobs;
  const heads = [words.attempt, words.result, words.host, words.memory, words.time, words.cores, words.endedAt];
  const marked = (now: ReactNode, differs: boolean) => 
    differs ? (
      <div className="differs">
        {now}
        <VisuallyHidden> {words.differs}</VisuallyHidden>
      </div>
    ) : (
      now
    );
  return (
    <section aria-labelledby="attempts">
      <Title order={2} id="attempts" mb={4}>
        {words.attempts}
      </Title>
      {/* A phone shows each row as a block of its own, and would take the roles away with the table's layout. */}
      <Table className="attempts" role="table" verticalSpacing={6} aria-labelledby="attempts">
        <Table.Thead role="rowgroup">
          <Table.Tr role="row">
            {heads.map((one) => (
              <Table.Th key={one} scope="col" role="columnheader">
                {one}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody role="rowgroup">
          {attempts.map((one, row) => {
            const before = attempts[row + 1];
            const { ending, asked } = one;
            const result = resultOf(texts, one);
            const more = (field: keyof Needs) => before?.asked != null && asked !== null && before.asked[field] !== asked[field];
            const cells: ReactNode[] = [
              <Anchor component={Link} href={place(one.number)} fz="sm" fw={600} aria-current={one.number === chosen ? "true" : undefined} underline="always">
                {words.attempt} {one.number}
              </Anchor>,
              marked(
                <>
                  {result}
                  {one.incident && ` · ${cause(one.incident.cause)[0]}`}
                </>,
                before !== undefined && (resultOf(texts, before) !== result || before.incident?.cause !== one.incident?.cause),
              ),
              marked(visible(one.host) || "–", before !== undefined && one.host !== "" && before.host !== one.host),
              marked(<Used used={ending?.peak_memory} asked={asked?.memory} unit="bytes" label={words.memory} />, more("memory")),
              marked(<Used used={ending?.wall} asked={asked?.wall} unit="seconds" label={words.time} />, more("wall")),
              marked(<Used used={ending?.cpu != null && ending.wall ? Number((ending.cpu / ending.wall).toFixed(1)) : null} asked={asked?.cpus} unit="number" label={words.cores} />, more("cpus")),
              one.running ? "–" : one.at !== null && <Ago at={one.at} />,
            ];
            return (
              <Table.Tr key={one.number} role="row" data-chosen={one.number === chosen}>
                {cells.map((cell, column) => (
                  <Table.Td key={heads[column]} role="cell" data-head={heads[column]}>
                    <div>{cell}</div>
                  </Table.Td>
                ))}
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </Table>
      {count > attempts.length && (
        <Text fz="sm" c="dimmed">
          {words.earlier(count - attempts.length)}
        </Text>
      )}
    </section>
  );
}
