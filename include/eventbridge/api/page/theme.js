// Applies the theme of Airflow's page that frames this one, from the same server: its class on <html>, and its colours.
const root = document.documentElement;
let outer = null;
try { if (parent !== window) outer = parent.document.documentElement; } catch { /* framed by another site */ }
const names = { back: "bg-subtle", surface: "bg", soft: "bg-muted", text: "fg", quiet: "fg-muted", line: "border" };
const apply = () => {
  root.dataset.theme = outer.classList.contains("dark") ? "dark" : "light";
  const style = parent.getComputedStyle(outer);
  for (const [own, name] of Object.entries(names)) {
    const value = style.getPropertyValue(`--chakra-colors-${name}`).trim();
    if (value) root.style.setProperty(`--${own}`, value);
  }
};
if (outer) {
  apply();
  new MutationObserver(apply).observe(outer, { attributeFilter: ["class"] });
}
// A link to one of Airflow's own pages opens it in the outer window; the frame allows no other navigation there.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-outer]");
  if (!link || !outer || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  parent.history.pushState(null, "", link.href);
  parent.dispatchEvent(new PopStateEvent("popstate", { state: null }));
});
