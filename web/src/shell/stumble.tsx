import { Button, Stack, Text } from "@mantine/core";
import { Component, type ReactNode } from "react";
import { useTexts } from "../texts/texts";

function Stumbled() {
  const texts = useTexts();
  return (
    <Stack p="xl" align="flex-start" role="alert">
      <Text>{texts.app.stumbled}</Text>
      <Button variant="default" onClick={() => location.reload()}>
        {texts.app.again}
      </Button>
    </Stack>
  );
}

/** Keeps the menu in place when a page cannot be shown: its files are gone with an older server, or it has a failure. */
export class Stumble extends Component<{ children: ReactNode }, { stumbled: boolean }> {
  override state = { stumbled: false };

  static getDerivedStateFromError() {
    return { stumbled: true };
  }

  override render() {
    return this.state.stumbled ? <Stumbled /> : this.props.children;
  }
}
