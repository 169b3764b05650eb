// A panel on Airflow's home page: lag of each bus, and what is not well. Airflow imports it and gives it React and Chakra.
const { createElement: h, useEffect, useState } = globalThis.React;
const { Box, Heading, Text } = globalThis.ChakraUI;
const base = new URL(document.baseURI).pathname.replace(/\/$/, "");
const page = `${base}/plugin/eventbridge${base}/eventbridge/page`;
const number = (value) => (value === null ? "?" : value.toLocaleString("en"));

globalThis["EventBridge lag"] = () => {
  const [told, tell] = useState(null);
  useEffect(() => {
    const look = () =>
      fetch(`${base}/eventbridge/page/lag.json`)
        .then((response) => (response.ok ? response.json() : null))
        .then(tell, () => tell(null));
    look();
    const timer = setInterval(look, 30_000);
    return () => clearInterval(timer);
  }, []);
  if (!told) return null; // nobody who may see it, or no installation
  const lines = told.buses.map((each) =>
    h(Text, { key: each.bus }, `${each.bus}: lag ${number(each.lag)}, in flight ${number(each.in_flight)}, available ${number(each.available)}`),
  );
  const unwell = told.targets ? `${number(told.targets)} targets are not well` : "All targets are well";
  return h(
    Box,
    { order: 4, borderWidth: 1, borderRadius: 5, p: 4 },
    h(Heading, { size: "sm" }, h("a", { href: page }, "EventBridge")),
    ...lines,
    h(Text, { color: told.targets ? "fg.error" : "fg.muted" }, `${unwell}; ${number(told.pending)} deliveries are pending`),
  );
};
