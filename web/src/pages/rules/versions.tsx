import { Button, Group, List, Modal, Stack, Text, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, told } from "../../api/client";
import { useMay } from "../../api/session";
import { Moment } from "../../parts/ago";
import { Plain, visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

const SHOWN = 8;

/** What is different in `number`, compared with `old`. */
function Diff({ level, name, old, number }: { level: string; name: string; old: number; number: number }) {
  const texts = useTexts();
  const found = useQuery({
    queryKey: ["rule-set", level, name, "diff", old, number],
    queryFn: () =>
      told(
        api.GET("/v1/rules/{level}/{name}/diff", {
          params: { path: { level: level as "domain", name }, query: { old, new: number } },
        }),
      ),
  });
  const changes = (found.data?.changes ?? []) as { change: string; rule: string; after?: { condition: string }; before?: { condition: string } }[];
  return (
    <>
      <ProblemBox problem={found.error} />
      <List size="sm" mt={4}>
        {changes.map((one) => (
          <List.Item key={`${one.change} ${one.rule}`}>
            {texts.rules.changes[one.change] ?? one.change}: <Plain text={one.after?.condition ?? one.before?.condition ?? one.rule} />
          </List.Item>
        ))}
      </List>
    </>
  );
}

/** The versions of a set, what each changed, and the way back. */
export function Versions({ level, name, current }: { level: string; name: string; current: number }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const may = useMay("rule-author");
  const [open, setOpen] = useState<number | null>(null);
  const [unsure, setUnsure] = useState<number | null>(null);
  const path = { level: level as "domain", name };
  const found = useQuery({
    queryKey: ["rule-set", level, name, "versions"],
    queryFn: () => told(api.GET("/v1/rules/{level}/{name}/versions", { params: { path } })),
  });
  const back = useMutation({
    mutationFn: (version: number) => told(api.POST("/v1/rules/{level}/{name}/rollback", { params: { path }, body: { version } })),
    onSuccess: () => {
      setUnsure(null);
      return Promise.all([queries.invalidateQueries({ queryKey: ["rule-set"] }), queries.invalidateQueries({ queryKey: ["rule-sets"] })]);
    },
  });
  return (
    <Stack gap="xs" className="panel" p="md" component="section" aria-labelledby="versions">
      <Title order={2} id="versions">
        {texts.rules.versions}
      </Title>
      <ProblemBox problem={found.error} />
      <Stack component="ol" gap={6} m={0} p={0}>
        {found.data?.versions.slice(0, SHOWN).map((one) => (
          <li key={one.number} className="version">
            <Group justify="space-between" gap={6}>
              <Text fz="sm" style={{ overflowWrap: "anywhere" }}>
                <b>{one.number}</b> {visible(one.note)}{" "}
                <Text span c="dimmed" fz="sm">
                  {texts.rules.by(visible(one.by))} · <Moment at={one.at} />
                </Text>
              </Text>
              <Group gap={6}>
                <Button size="compact-xs" variant="default" aria-expanded={open === one.number} onClick={() => setOpen(open === one.number ? null : one.number)}>
                  {texts.rules.diff}
                </Button>
                {may && one.number < current && (
                  <Button size="compact-xs" variant="default" onClick={() => (back.reset(), setUnsure(one.number))}>
                    {texts.rules.rollBack(one.number)}
                  </Button>
                )}
              </Group>
            </Group>
            {open === one.number && <Diff level={level} name={name} old={one.number - 1} number={one.number} />}
          </li>
        ))}
      </Stack>
      <Modal opened={unsure !== null} onClose={() => setUnsure(null)} title={unsure !== null && texts.rules.rollBack(unsure)} closeButtonProps={{ "aria-label": texts.app.close }} centered>
        {unsure !== null && (
          <Stack gap="sm">
            <ProblemBox problem={back.error} />
            <Text fz="sm">{texts.rules.rollBackWords}</Text>
            <Diff level={level} name={name} old={current} number={unsure} />
            <Group justify="flex-end" gap="xs">
              <Button variant="default" onClick={() => setUnsure(null)}>
                {texts.app.cancel}
              </Button>
              <Button loading={back.isPending} onClick={() => back.mutate(unsure)}>
                {texts.rules.rollBack(unsure)}
              </Button>
            </Group>
          </Stack>
        )}
      </Modal>
    </Stack>
  );
}
