import { Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, told, type Schemas } from "../../api/client";
import { Plain } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { RuleTree, type ShownTree, type Tested } from "../../parts/rule-tree";
import { useTexts } from "../../texts/texts";

interface Walk {
  level: string;
  name: string;
  version: number;
  type: string;
  task: string;
  tested: Tested;
  decides: string | null;
}

type PathStep = { rule: string; verdict: string };

function recorded(incident: Schemas["IncidentWholeOut"]): Walk | null {
  const by = incident.decisions.findLast((one) => Array.isArray(one.detail.path));
  if (by === undefined) return null;
  const [level = "", name = ""] = String(by.detail.rule_set).split("/").slice(-2);
  const [type = "", task = ""] = String(by.detail.tree).split(":");
  const path = by.detail.path as PathStep[];
  const rule = by.by.split("#").at(-1) ?? null;
  return { level, name, version: Number(by.detail.version), type, task, tested: new Map(path.map((one) => [one.rule, one.verdict])), decides: rule };
}

interface ShownWalk {
  rule_set: { level: string; name: string };
  version: number;
  type: string;
  task: string;
  path: PathStep[];
}

function asked(ruling: Schemas["RulingOut"]): Walk[] {
  const active = ruling.active as { rule: string | null; walks: ShownWalk[] };
  return active.walks.map((one) => ({
    level: one.rule_set.level,
    name: one.rule_set.name,
    version: one.version,
    type: one.type,
    task: one.task,
    tested: new Map(one.path.map((tested) => [tested.rule, tested.verdict])),
    decides: active.rule,
  }));
}

function OneTree({ walk }: { walk: Walk }) {
  const texts = useTexts();
  const found = useQuery({
    queryKey: ["rule-set", walk.level, walk.name, walk.version],
    queryFn: () =>
      told(
        api.GET("/v1/rules/{level}/{name}", {
          params: { path: { level: walk.level as "domain", name: walk.name }, query: { version: walk.version } },
        }),
      ),
    staleTime: Infinity,
  });
  const trees = (found.data?.trees ?? []) as unknown as ShownTree[];
  const tree = trees.find((one) => one.type === walk.type && (one.task === walk.task || (walk.task === "*" && one.task === "")));
  return (
    <div>
      <Text fz="sm" fw={600} mb={4}>
        {walk.level}/{walk.name} · {texts.rules.tree(walk.type, walk.task === "*" ? "" : walk.task)} · {texts.rules.version(walk.version)}
      </Text>
      <ProblemBox problem={found.error} />
      {tree && <RuleTree tree={tree} tested={walk.tested} decides={walk.decides} height={Math.min(460, 120 + tree.rules.length * 90)} />}
    </div>
  );
}

/** The way that the exception took through the rules: as it was decided, or as it would be now. */
export function Path({ incident }: { incident: Schemas["IncidentWholeOut"] }) {
  const texts = useTexts();
  const kept = recorded(incident);
  const now = useQuery({
    queryKey: ["walk", incident.id],
    queryFn: () => told(api.POST("/v1/rules/test", { body: { incident: incident.id, task: "", flow: "" } })),
    enabled: kept === null,
  });
  const walks = kept !== null ? [kept] : now.data ? asked(now.data).filter((one) => one.tested.size > 0) : [];
  return (
    <section aria-labelledby="path">
      <Title order={2} id="path">
        {texts.incident.path}
      </Title>
      <ProblemBox problem={now.error} />
      {walks.length > 0 && (
        <Stack gap="xs">
          <Text fz="sm" c="dimmed">
            {texts.incident.pathWords}
          </Text>
          {walks.map((one) => (
            <OneTree key={`${one.level}/${one.name} ${one.type} ${one.task}`} walk={one} />
          ))}
        </Stack>
      )}
      {kept === null && now.data && walks.length === 0 && <Text fz="sm">{texts.incident.noRules}</Text>}
      {now.data?.shadow != null && kept === null && (
        <Text fz="sm" mt="xs">
          {texts.incident.shadows} <Plain text={now.data.words.filter((one) => one.startsWith("with shadows")).at(-1) ?? ""} />
        </Text>
      )}
    </section>
  );
}
