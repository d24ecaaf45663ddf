import { Anchor, Grid, Group, Loader, Stack, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useCause } from "../../parts/cause";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import Job from "../jobs/job";
import { Acts } from "./acts";
import { Decided } from "./decided";
import { Evidence, FactTable } from "./evidence";
import { Path } from "./path";
import { Story } from "./story";
import { Verdict } from "./verdict";

type Whole = Schemas["IncidentWholeOut"];

/** An exception of a run, or of another engine's task: what is no failure of a job of ours. */
function OfRun({ incident }: { incident: Whole }) {
  const texts = useTexts();
  const cause = useCause();
  useDocumentTitle(`${texts.incident.title(cause(incident.cause)[0])} · Forestay`);
  const facts = {
    [texts.incident.owner]: incident.owner,
    [texts.incident.attempt]: incident.attempt || null,
    [texts.incident.job]: incident.job || null,
    [texts.incident.run]: incident.run ? `${incident.run}${incident.task ? `, ${incident.task}` : ""}` : null,
    [texts.rules.type]: incident.type,
  };
  return (
    <Stack gap="md" maw={1280}>
      <div>
        <Anchor component={Link} href="/inbox" fz="sm">
          ← {texts.pages.inbox}
        </Anchor>
        <Title order={1}>{texts.incident.title(cause(incident.cause)[0])}</Title>
      </div>
      <Grid gutter="lg" className="panel" p="md" m={0}>
        <Grid.Col span={{ base: 12, md: 8 }}>
          <Verdict incident={incident} />
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 4 }}>
          <Acts incident={incident} />
        </Grid.Col>
      </Grid>
      <Grid gutter="lg">
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack gap="md" className="panel" p="md">
            <FactTable facts={facts} caption={texts.pages.incident} />
            <Group gap="md">
              {incident.run && incident.engine === "forestay" && (
                <Anchor component={Link} href={`/runs/${incident.run}`} fz="sm">
                  {texts.incident.run}
                </Anchor>
              )}
            </Group>
            <Evidence incident={incident} />
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 7 }}>
          <Stack gap="md" className="panel" p="md">
            <Path incident={incident} />
            <Decided incident={incident} />
            <Story incidents={[incident]} run={incident.run} />
          </Stack>
        </Grid.Col>
      </Grid>
    </Stack>
  );
}

/** One incident. The failure of a job is shown with its job: the two are one page. */
export default function Incident({ incident }: { incident: string }) {
  const texts = useTexts();
  const found = useQuery({
    queryKey: ["incident", incident],
    queryFn: () => told(api.GET("/v1/incidents/{incident}", { params: { path: { incident } } })),
  });
  const whole = found.data;
  if (whole === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  return whole.job !== "" && whole.engine === "forestay" ? <Job name={whole.job} incident={whole} /> : <OfRun incident={whole} />;
}
