import { Center, Container, Loader, Text } from "@mantine/core";
import { lazy, Suspense, type ReactNode } from "react";
import { Redirect, Route, Switch, useLocation } from "wouter";
import { Problem } from "./api/client";
import { SessionProvider, useSessionQuery } from "./api/session";
import { ProblemBox } from "./parts/problem-box";
import { Shell } from "./shell/shell";
import { Stumble } from "./shell/stumble";
import { useTexts } from "./texts/texts";

const Inbox = lazy(() => import("./pages/inbox/inbox"));
const KnownError = lazy(() => import("./pages/error/error"));
const Incident = lazy(() => import("./pages/incident/incident"));
const Runs = lazy(() => import("./pages/runs/runs"));
const FlowRun = lazy(() => import("./pages/runs/run"));
const Jobs = lazy(() => import("./pages/jobs/jobs"));
const Job = lazy(() => import("./pages/jobs/job"));
const Overview = lazy(() => import("./pages/overview/overview"));
const Fleet = lazy(() => import("./pages/fleet/fleet"));
const Rules = lazy(() => import("./pages/rules/rules"));

function Waiting() {
  const texts = useTexts();
  return (
    <Center p="xl">
      <Loader size="sm" aria-label={texts.app.loading} />
    </Center>
  );
}

function Known({ children }: { children: ReactNode }) {
  const texts = useTexts();
  const session = useSessionQuery();
  if (session.isPending) return <Waiting />;
  if (session.isError) {
    const out = session.error instanceof Problem && session.error.status === 401;
    return (
      <Container size="sm" p="xl" component="main">
        {out ? <Text>{texts.app.loggedOut}</Text> : <ProblemBox problem={session.error} />}
      </Container>
    );
  }
  return <SessionProvider session={session.data}>{children}</SessionProvider>;
}

export function App() {
  const texts = useTexts();
  const [where] = useLocation();
  return (
    <Known>
      <Shell>
        <Stumble key={where}>
          <Suspense fallback={<Waiting />}>
            <Switch>
              <Route path="/">
                <Redirect to="/inbox" replace />
              </Route>
              <Route path="/inbox" component={Inbox} />
              <Route path="/errors/:fingerprint">{({ fingerprint }) => <KnownError fingerprint={fingerprint} key={fingerprint} />}</Route>
              <Route path="/incidents/:incident">{({ incident }) => <Incident incident={incident} key={incident} />}</Route>
              <Route path="/runs" component={Runs} />
              <Route path="/runs/:name">{({ name }) => <FlowRun name={name} key={name} />}</Route>
              <Route path="/jobs" component={Jobs} />
              <Route path="/jobs/:name">{({ name }) => <Job name={name} key={name} />}</Route>
              <Route path="/overview" component={Overview} />
            <Route path="/fleet" component={Fleet} />
            <Route path="/rules" component={Rules} />
              <Route path="/rules/:level/:name" component={Rules} />
              <Route>
                <Text p="md">{texts.app.missing}</Text>
              </Route>
            </Switch>
          </Suspense>
        </Stumble>
      </Shell>
    </Known>
  );
}
