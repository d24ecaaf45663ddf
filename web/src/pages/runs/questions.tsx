import { Anchor, Button, Group, NumberInput, Paper, Radio, Select, SimpleGrid, Stack, Text, Textarea, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { Ago } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

type Question = Schemas["QuestionOut"];
type Value = string | number | boolean;

/** A field of a question's form: the part of JSON Schema that the server lets through. */
interface FormField {
  type: "string" | "number" | "integer" | "boolean";
  title?: string;
  description?: string;
  default?: Value;
  enum?: Value[];
  minimum?: number;
  maximum?: number;
  maxLength?: number;
}

const fieldsOf = (question: Question): [string, FormField][] => Object.entries((question.form["properties"] ?? {}) as Record<string, FormField>);
const requiredOf = (question: Question): string[] => (question.form["required"] ?? []) as string[];

/** The questions that wait for an answer; asked for by the inbox and by the page of a run. */
export function useQuestions() {
  return useQuery({
    queryKey: ["questions"],
    queryFn: () => told(api.GET("/v1/questions", { params: { query: { state: "waiting" } } })),
    refetchInterval: 5_000,
  });
}

interface Given {
  name: string;
  field: FormField;
  value: Value | undefined;
  required: boolean;
  focus: boolean;
  set(value: Value | undefined): void;
}

/** One field of the form, by its type. */
function Field({ name, field, value, required, focus, set }: Given) {
  const texts = useTexts();
  const common = {
    size: "sm",
    label: visible(field.title ?? name),
    description: field.description === undefined ? undefined : visible(field.description),
    required,
    autoFocus: focus,
  } as const;
  if (field.enum !== undefined) {
    return (
      <Select
        {...common}
        data={field.enum.map((one) => ({ value: String(one), label: visible(String(one)) }))}
        value={value === undefined ? null : String(value)}
        clearable={!required}
        onChange={(chosen) => set(field.enum?.find((one) => String(one) === chosen))}
      />
    );
  }
  if (field.type === "boolean") {
    // Not answered is not the same as no.
    return (
      <Radio.Group label={common.label} description={common.description} required={required} value={value === undefined ? "" : String(value)} onChange={(chosen) => set(chosen === "true")}>
        <Group gap="md" mt={4}>
          <Radio value="true" label={texts.questions.yes} autoFocus={focus} />
          <Radio value="false" label={texts.questions.no} />
        </Group>
      </Radio.Group>
    );
  }
  if (field.type === "string") {
    return <Textarea {...common} autosize minRows={1} maxRows={8} maxLength={field.maxLength} value={String(value ?? "")} onChange={(event) => set(event.currentTarget.value || undefined)} />;
  }
  return (
    <NumberInput
      {...common}
      min={field.minimum}
      max={field.maximum}
      allowDecimal={field.type === "number"}
      value={typeof value === "number" ? value : ""}
      onChange={(number) => set(typeof number === "number" ? number : undefined)}
    />
  );
}

function Answer({ question, focus }: { question: Question; focus: boolean }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const fields = fieldsOf(question);
  const required = requiredOf(question);
  const [values, setValues] = useState<Record<string, Value | undefined>>(() => Object.fromEntries(fields.map(([name, field]) => [name, field.default])));
  const answering = useMutation({
    mutationFn: () => {
      const answer = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Record<string, Value>;
      return told(api.POST("/v1/questions/{question}", { params: { path: { question: question.id } }, body: { answer } }));
    },
    onSuccess: () => Promise.all([queries.invalidateQueries({ queryKey: ["questions"] }), queries.invalidateQueries({ queryKey: ["run", question.run] })]),
  });
  const ready = required.every((name) => values[name] !== undefined);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) answering.mutate();
      }}
    >
      <Stack gap="xs" mt="xs">
        {fields.map(([name, field], place) => (
          <Field
            key={name}
            name={name}
            field={field}
            value={values[name]}
            required={required.includes(name)}
            focus={focus && place === 0}
            set={(value) => setValues((before) => ({ ...before, [name]: value }))}
          />
        ))}
        <ProblemBox problem={answering.error} />
        <Group>
          <Button type="submit" size="sm" disabled={!ready} loading={answering.isPending}>
            {fields.length > 0 ? texts.questions.answer : texts.questions.confirm}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

function One({ question, focus, linked }: { question: Question; focus: boolean; linked: boolean }) {
  const texts = useTexts();
  return (
    <Paper component="article" aria-label={visible(question.title)} withBorder p="sm" data-question={question.id}>
      <Text fw={600}>{visible(question.title)}</Text>
      {question.text && (
        <Text fz="sm" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
          {visible(question.text)}
        </Text>
      )}
      <Text fz="sm" c="dimmed">
        {linked && (
          <>
            <Anchor component={Link} href={`/runs/${question.run}`} fz="sm" underline="always">
              {visible(question.flow)} {visible(question.run.slice(0, 8))}
            </Anchor>{" "}
            ·{" "}
          </>
        )}
        {visible(question.task)} · <Ago at={question.asked} />
        {question.until && (
          <>
            {" "}
            · {question.default === null ? texts.questions.failsAt : texts.questions.defaultAt(visible(JSON.stringify(question.default)))} <Ago at={question.until} />
          </>
        )}
      </Text>
      {question.may_answer ? <Answer question={question} focus={focus} /> : <Text fz="sm">{texts.questions.who(visible(question.who.join(", ")))}</Text>}
    </Paper>
  );
}

/** What runs ask people: of one run, or all. With `focus` the first can be answered at once. */
export function Questions({ run, focus = false }: { run?: string; focus?: boolean }) {
  const texts = useTexts();
  const found = useQuestions();
  const shown = found.data?.questions.filter((one) => run === undefined || one.run === run) ?? [];
  if (run !== undefined && shown.length === 0) return null;
  const first = shown.find((one) => one.may_answer)?.id;
  return (
    <section aria-labelledby="questions">
      <Title order={2} id="questions" mb="xs">
        {texts.questions.title}
      </Title>
      <ProblemBox problem={found.error} />
      {found.data !== undefined && shown.length === 0 && <Text c="dimmed">{texts.questions.none}</Text>}
      <SimpleGrid cols={{ base: 1, lg: shown.length > 1 ? 2 : 1 }} spacing="xs" verticalSpacing="xs">
        {shown.map((one) => (
          <One key={one.id} question={one} focus={focus && one.id === first} linked={run === undefined} />
        ))}
      </SimpleGrid>
    </section>
  );
}
