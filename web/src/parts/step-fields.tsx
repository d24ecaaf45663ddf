import { Text, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";
import { useTexts } from "../texts/texts";
import { visible } from "./plain";
import { ending, FIELD, stepWords, template, unitAt, valueAt, withValue, type Step } from "./step-words";
import { exact, read } from "./units";

interface Given {
  step: Step;
  change(step: Step): void;
}

function Field({ step, change, path }: Given & { path: string }) {
  const texts = useTexts();
  const unit = unitAt(path);
  const value = valueAt(step, path);
  const [text, setText] = useState(exact(unit, value));
  // What is no amount stands in the step as it was written: who checks the step says so.
  useEffect(() => setText((before) => ((read(unit, before) ?? before) === value ? before : exact(unit, value))), [unit, value]);
  const [last = "", need] = path.split(".").reverse();
  return (
    <TextInput
      size="xs"
      w={`${Math.min(28, Math.max(unit === "text" ? 16 : 5, text.length + 3))}ch`}
      aria-label={[texts.steps.fields[last] ?? last, need && (texts.steps.amounts[need] ?? need)].filter(Boolean).join(": ")}
      error={read(unit, text) === null}
      value={text}
      maxLength={500}
      onChange={(event) => {
        const written = event.currentTarget.value;
        setText(written);
        change(withValue(step, path.split("."), read(unit, written) ?? written));
      }}
    />
  );
}

/** A step in words, whose values can be written over. */
export function StepFields({ step, change }: Given) {
  const texts = useTexts();
  const sentence = template(texts, step);
  if (sentence === null) return <Text fz="sm">{stepWords(texts, step)}</Text>;
  // Every second part is the name of a field.
  return (
    <Text fz="sm" component="span" className="step">
      {sentence.split(FIELD).map((part, place) => (place % 2 === 0 ? <span key={place}>{visible(part)}</span> : <Field key={part} step={step} change={change} path={part} />))}
      {ending(texts, step)}
    </Text>
  );
}
