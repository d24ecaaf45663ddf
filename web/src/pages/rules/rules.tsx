import { Grid, Group, List, Loader, NavLink, SegmentedControl, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation, useParams, useSearchParams } from "wouter";
import { api, Problem, told } from "../../api/client";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { RuleTree, type ShownTree } from "../../parts/rule-tree";
import { useTexts } from "../../texts/texts";
import { RuleCard } from "./rule-card";
import { RuleEditor } from "./rule-editor";
import { Versions } from "./versions";

function SetShown({ level, name, chosen, added }: { level: string; name: string; chosen: string | null; added: boolean }) {
  const texts = useTexts();
  const [, go] = useLocation();
  const [as, setAs] = useState("graph");
  const found = useQuery({
    queryKey: ["rule-set", level, name, "now"],
    queryFn: () => told(api.GET("/v1/rules/{level}/{name}", { params: { path: { level: level as "domain", name } } })),
  });
  if (found.error instanceof Problem && found.error.status === 404) {
    return (
      <div className="panel">
        <Stack p="lg" gap="xs">
          <Title order={2}>{texts.rules.none}</Title>
          <Text>{texts.rules.noneWords}</Text>
        </Stack>
      </div>
    );
  }
  if (found.data === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  const trees = found.data.trees as unknown as ShownTree[];
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Text c="dimmed">
          {texts.rules.level[level] ?? level} {visible(name)} · {texts.rules.version(found.data.version)} · {texts.rules.rulesMany(found.data.rules)}
        </Text>
        <SegmentedControl
          size="xs"
          value={as}
          onChange={setAs}
          aria-label={texts.rules.trees}
          data={[
            { value: "graph", label: texts.rules.graph },
            { value: "words", label: texts.rules.inWords },
          ]}
        />
      </Group>
      <Grid gutter="md">
        <Grid.Col span={{ base: 12, md: 7 }}>
          <Stack gap="md">
            {trees.map((tree) => (
              <section key={`${tree.type} ${tree.task}`} aria-label={texts.rules.tree(tree.type, tree.task)}>
                <Title order={2} mb={4}>
                  {texts.rules.tree(tree.type, tree.task === "*" ? "" : tree.task)}
                </Title>
                {as === "graph" ? (
                  <RuleTree tree={tree} chosen={chosen} choose={(rule) => go(`/rules/${level}/${name}?rule=${rule}`)} />
                ) : (
                  <List className="panel" p="md" listStyleType="none">
                    {tree.words.map((line) => (
                      <List.Item key={line} className="plain">
                        {visible(line)}
                      </List.Item>
                    ))}
                  </List>
                )}
              </section>
            ))}
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack gap="md">
            {chosen && <RuleCard key={chosen} level={level} name={name} rule={chosen} added={added} />}
            <Versions level={level} name={name} current={found.data.version} />
          </Stack>
        </Grid.Col>
      </Grid>
    </Stack>
  );
}

function Sets({ open }: { open: string }) {
  const texts = useTexts();
  const found = useQuery({ queryKey: ["rule-sets"], queryFn: () => told(api.GET("/v1/rules")) });
  return (
    <Stack gap={0} className="panel" p="xs" component="nav" aria-label={texts.rules.sets}>
      <ProblemBox problem={found.error} />
      {found.data?.rule_sets.map((one) => (
        <NavLink
          key={`${one.level}/${one.name}`}
          component={Link}
          href={`/rules/${one.level}/${one.name}`}
          active={open === `${one.level}/${one.name}`}
          label={`${one.level}/${visible(one.name)}`}
          description={texts.rules.rulesMany(one.rules)}
        />
      ))}
      {found.data?.rule_sets.length === 0 && (
        <Text fz="sm" p="xs">
          {texts.rules.none}
        </Text>
      )}
    </Stack>
  );
}

function Written({ level, name, from }: { level: string; name: string; from: string }) {
  const texts = useTexts();
  const found = useQuery({
    queryKey: ["incident", from],
    queryFn: () => told(api.GET("/v1/incidents/{incident}", { params: { path: { incident: from } } })),
  });
  if (found.data === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  return <RuleEditor level={level} name={name} incident={found.data} />;
}

export default function Rules() {
  const texts = useTexts();
  const { level = "domain", name = "site" } = useParams<{ level?: string; name?: string }>();
  const [search] = useSearchParams();
  const from = search.get("from");
  useDocumentTitle(`${texts.rules.title} · Forestay`);
  if (from !== null) return <Written level={level} name={name} from={from} key={from} />;
  return (
    <Stack gap="sm" maw={1500}>
      <div>
        <Title order={1}>{texts.rules.title}</Title>
        <Text c="dimmed">{texts.rules.words}</Text>
      </div>
      <Grid gutter="md">
        <Grid.Col span={{ base: 12, md: 2 }}>
          <Sets open={`${level}/${name}`} />
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 10 }}>
          <SetShown level={level} name={name} chosen={search.get("rule")} added={search.has("added")} key={`${level}/${name}`} />
        </Grid.Col>
      </Grid>
    </Stack>
  );
}
