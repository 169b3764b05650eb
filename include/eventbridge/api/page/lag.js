// The panel on Airflow's home page: lag of each bus, and unhealthy targets. Airflow imports it and provides React and Chakra.
const { createElement: h, useEffect, useState } = globalThis.React;
const { Box, Heading, Text } = globalThis.ChakraUI;
const base = new URL(document.baseURI).pathname.replace(/\/$/, "");
const page = `${base}/plugin/eventbridge${base}/eventbridge/page`;
const number = (value) => (value === null ? "?" : value.toLocaleString("en"));

globalThis["EventBridge lag"] = () => {
  const [lag, setLag] = useState(null);
  useEffect(() => {
    const load = () =>
      fetch(`${base}/eventbridge/page/lag.json`)
        .then((response) => (response.ok ? response.json() : null))
        .then(setLag, () => setLag(null));
    load();
    const timer = setInterval(load, 30_000);
    return () => clearInterval(timer);
  }, []);
  if (!lag) return null; // no permission, or no installation
  const lines = lag.buses.map((each) =>
    h(Text, { key: each.bus }, `${each.bus}: lag ${number(each.lag)}, in flight ${number(each.in_flight)}, available ${number(each.available)}`),
  );
  const unhealthy = lag.targets ? `Unhealthy targets: ${number(lag.targets)}` : "All targets are healthy";
  return h(
    Box,
    { order: 4, borderWidth: 1, borderRadius: 5, p: 4 },
    h(Heading, { size: "sm" }, h("a", { href: page }, "EventBridge")),
    ...lines,
    h(Text, { color: lag.targets ? "fg.error" : "fg.muted" }, `${unhealthy}; pending deliveries: ${number(lag.pending)}`),
  );
};
