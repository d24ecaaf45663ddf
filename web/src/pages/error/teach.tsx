import { Anchor, Button, Checkbox, Chip, Code, Group, List, Loader, NativeSelect, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { useCause } from "../../parts/cause";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

type Known = Schemas["KnownErrorOut"];
type Wish = Schemas["TeachIn"];
type Trial = Schemas["TeachOut"];
type Cause = Wish["cause"];
const CAUSES: Cause[] = [
  "node", "network", "memory", "disk", "time", "scheduler", "transfer", "data-missing", "data-corrupt", "bad-input", "code", "output-missing", "policy", "preempted", "cleanup",
];
const RETRIES = ["same", "changed", "elsewhere", "no"] as const;
const SHOWN = 5;

function Others({ words, errors }: { words: string; errors: Trial["wrong"] }) {
  const cause = useCause();
  if (errors.length === 0) return null;
  return (
    <div>
      <Text fz="sm">{words}</Text>
      <List size="sm" listStyleType="none">
        {errors.slice(0, SHOWN).map((one) => (
          <List.Item key={one.fingerprint}>
            <Anchor component={Link} href={`/errors/${one.fingerprint}`} fz="sm" underline="always" style={{ overflowWrap: "anywhere" }}>
              {visible(one.title)}
            </Anchor>{" "}
            <Text span c="dimmed" fz="sm">
              {cause(one.cause)[0]} · {one.failures}
            </Text>
          </List.Item>
        ))}
      </List>
    </div>
  );
}

/** What the pattern would do, before it is written. */
function Tried({ trial }: { trial: Trial }) {
  const texts = useTexts();
  return (
    <Stack gap={4} role="status">
      {trial.problems.map((one) => (
        <Text key={one} fz="sm" c="var(--bad)">
          {visible(one)}
        </Text>
      ))}
      {trial.pattern && trial.problems.length === 0 && (
        <Text fz="sm">{texts.error.teach.tried(trial.members, trial.errors, trial.failures.toLocaleString(texts.language), trial.whole)}</Text>
      )}
      <Others words={texts.error.teach.also} errors={trial.unknown} />
      <Others words={texts.error.teach.wrong} errors={trial.wrong} />
      {trial.examples.length > 0 && (
        <Text fz="sm" style={{ overflowWrap: "anywhere" }}>
          {texts.error.teach.examples} {trial.examples.slice(0, SHOWN).map(visible).join(", ")}
        </Text>
      )}
    </Stack>
  );
}

/** This error is that: a pattern for all like it, tried on the past before it is written. */
export function Teach({ error }: { error: Known }) {
  const texts = useTexts();
  const words = texts.error.teach;
  const cause = useCause();
  const queries = useQueryClient();
  const may = useMay("operator");
  const unknown = error.cause === "unknown";
  const [open, setOpen] = useState(unknown);
  const [chosen, setChosen] = useState<Cause | null>(null);
  const [retry, setRetry] = useState<Wish["retry"]>(null);
  const [pattern, setPattern] = useState("");
  const [asked, setAsked] = useState("");
  const [anyway, setAnyway] = useState(false);
  const path = { fingerprint: error.fingerprint };
  const wish = (dry_run: boolean): Wish => ({ cause: chosen ?? "node", retry, pattern: asked, dry_run, anyway, reason: "" });
  const trial = useQuery({
    queryKey: ["teach", error.fingerprint, chosen, retry, asked],
    queryFn: () => told(api.POST("/v1/errors/{fingerprint}/teach", { params: { path }, body: wish(true) })),
    enabled: chosen !== null,
    staleTime: 30_000,
  });
  const teaching = useMutation({
    mutationFn: () => told(api.POST("/v1/errors/{fingerprint}/teach", { params: { path }, body: wish(false) })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["inbox"] }),
  });
  if (!may) return null;
  const done = teaching.data?.written ? teaching.data : undefined;
  const tried = teaching.data && !done ? teaching.data : trial.data;
  const harmful = tried !== undefined && (tried.wrong.length > 0 || tried.examples.length > 0);
  const ready = tried !== undefined && tried.pattern !== null && tried.problems.length === 0 && (!harmful || anyway) && pattern === asked;
  return (
    <section aria-labelledby="teach">
      <Stack gap="xs">
        <Title order={2} id="teach">
          {words.title}
        </Title>
        {done ? (
          <Text role="status">
            {words.done(done.judged)}{" "}
            {done.now !== "" && (
              <Anchor component={Link} href={`/errors/${done.now}`} underline="always">
                {words.now}
              </Anchor>
            )}
          </Text>
        ) : !open ? (
          <Button size="xs" variant="default" onClick={() => setOpen(true)} style={{ alignSelf: "start" }}>
            {words.change}
          </Button>
        ) : (
          <>
            <Text fz="sm" c="dimmed">
              {words.words}
            </Text>
            <Chip.Group value={chosen} onChange={(value) => setChosen(value as Cause)}>
              <Group gap={4} role="radiogroup" aria-label={words.cause}>
                {CAUSES.filter((one) => one !== error.cause).map((one) => (
                  <Chip key={one} value={one} size="xs" variant="outline">
                    {cause(one)[0]}
                  </Chip>
                ))}
              </Group>
            </Chip.Group>
            {chosen !== null && (
              <>
                {trial.isPending && <Loader size="xs" aria-label={texts.app.loading} />}
                {tried?.pattern && asked === "" && <Code style={{ overflowWrap: "anywhere", whiteSpace: "normal" }}>{visible(tried.pattern.pattern)}</Code>}
                {tried && <Tried trial={tried} />}
                <NativeSelect
                  size="xs"
                  label={words.retry}
                  value={retry ?? tried?.pattern?.retry ?? "no"}
                  onChange={(event) => setRetry(event.currentTarget.value as Wish["retry"])}
                  data={RETRIES.map((one) => ({ value: one, label: words.retries[one] }))}
                />
                <Group gap="xs" align="flex-end">
                  <TextInput
                    size="xs"
                    flex={1}
                    miw={160}
                    label={words.own}
                    value={pattern}
                    maxLength={600}
                    onChange={(event) => setPattern(event.currentTarget.value)}
                  />
                  <Button size="xs" variant="default" disabled={pattern === asked} onClick={() => setAsked(pattern)}>
                    {words.try}
                  </Button>
                </Group>
                {harmful && <Checkbox size="xs" label={words.anyway} checked={anyway} onChange={(event) => setAnyway(event.currentTarget.checked)} />}
                <ProblemBox problem={trial.error ?? teaching.error} />
                <Button disabled={!ready} loading={teaching.isPending} onClick={() => teaching.mutate()}>
                  {words.teach(cause(chosen)[0])}
                </Button>
              </>
            )}
          </>
        )}
      </Stack>
    </section>
  );
}
