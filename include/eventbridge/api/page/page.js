// What every page can do with a script; without one, everything can still be read and sent.
const find = document.querySelector(".search input");

// The time zone: times are written in UTC; a reader may choose the zone of the browser.
const zones = { utc: document.getElementById("utc"), local: document.getElementById("local") };
const two = (value) => String(value).padStart(2, "0");
const local = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
const isLocal = () => localStorage.getItem("zone") === "local";
const showTimes = () => {
  const zone = isLocal() ? "local" : "utc";
  for (const each of document.querySelectorAll("[data-zone]")) each.textContent = isLocal() ? "local time" : "UTC";
  for (const [name, button] of Object.entries(zones)) button?.setAttribute("aria-pressed", String(name === zone));
  for (const each of document.querySelectorAll("time[datetime]")) {
    each.dataset.utc ??= each.textContent;
    each.textContent = zone === "local" ? local(new Date(each.dateTime)) : each.dataset.utc;
  }
};
for (const [name, button] of Object.entries(zones)) {
  if (!button) continue;
  button.hidden = false;
  button.addEventListener("click", () => {
    if ((name === "local") !== isLocal()) for (const each of timeInputs()) each.value = converted(each.value, name === "local");
    localStorage.setItem("zone", name);
    showTimes();
  });
}

// A time is typed in the zone that is shown, and sent in UTC; an age, or a time with an offset, stays as it is.
const timeInputs = (form = document) => form.querySelectorAll("input[data-time]");
const converted = (text, toLocal) => {
  const at = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?$/.test(text.trim()) && new Date(text.trim().replace(" ", "T") + (toLocal ? "Z" : ""));
  if (!at || isNaN(at)) return text;
  return toLocal ? local(at) : at.toISOString().slice(0, 19);
};
if (isLocal()) for (const each of timeInputs()) each.value = converted(each.value, true);
document.addEventListener("submit", (event) => {
  if (isLocal()) for (const each of timeInputs(event.target)) each.value = converted(each.value, false);
});
showTimes();

// A form that counts shows about how many events it chooses, half a second after the last change.
const counting = document.querySelector("form[data-count]");
let wait = 0;
counting?.addEventListener("input", () => {
  clearTimeout(wait);
  wait = setTimeout(async () => {
    if (!counting.checkValidity()) return;
    const query = new URLSearchParams(new FormData(counting));
    if (isLocal()) for (const each of timeInputs(counting)) query.set(each.name, converted(each.value, false));
    query.set("count", "1");
    const response = await fetch(`${counting.action}?${query}`).catch(() => null);
    if (!response?.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    document.getElementById("estimate").replaceChildren(...page.getElementById("estimate").childNodes);
  }, 500);
});

// Keys: / finds; j and k choose a row of the list, Enter opens it.
const rows = () => [...document.querySelectorAll("table.list tbody tr:has(a)")];
const choose = (step) => {
  const all = rows();
  const now = all.findIndex((row) => row.getAttribute("aria-selected") === "true");
  const next = all[Math.min(Math.max(now + step, 0), all.length - 1)];
  if (!next) return;
  all[now]?.removeAttribute("aria-selected");
  next.setAttribute("aria-selected", "true");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a").focus();
  preview(next);
};

// A row that is chosen or clicked shows the head of its page beside the list.
const preview = async (row) => {
  const pane = document.getElementById("preview");
  if (!pane || !row.dataset.preview) return;
  const response = await fetch(row.dataset.preview).catch(() => null);
  if (!response?.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  pane.replaceChildren(...page.querySelectorAll("main > h1, main > .sub, main > .tools, .card.brief"));
  pane.hidden = false;
  showTimes();
};
document.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-preview]");
  if (!row || event.target.closest("a, button")) return;
  for (const each of rows()) each.removeAttribute("aria-selected");
  row.setAttribute("aria-selected", "true");
  preview(row);
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "Escape" && typing) typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); find?.focus(); find?.select(); }
  if (event.key === "j") choose(1);
  if (event.key === "k") choose(-1);
});

// Chosen rows: the button of their form says how many there are; without a choice it is for all.
document.addEventListener("change", ({ target }) => {
  if (!target.dataset.count || !target.form) return;
  const button = target.form.querySelector("button");
  const count = [...target.form.elements].reduce((sum, each) => sum + (each.checked ? Number(each.dataset.count) : 0), 0);
  button.dataset.all ??= button.textContent;
  button.textContent = count ? `Redrive ${count.toLocaleString("en")} ...` : button.dataset.all;
});

// Copy: a button names the element whose text it copies.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
});

// A part that is live is loaded again every two seconds while it can be seen, unless the reader works in it.
const refresh = async () => {
  const part = document.getElementById("live");
  if (!part || document.hidden || part.contains(document.activeElement) || part.querySelector("details[open].keep")) return;
  const response = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (!response?.ok) return;
  const next = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("live");
  if (!next) return location.reload(); // it has ended
  if (next.innerHTML !== part.dataset.last) {
    part.dataset.last = next.innerHTML;
    part.replaceChildren(...next.childNodes);
    part.querySelectorAll("figure.chart").forEach(addTip);
    showTimes();
  }
};
if (document.getElementById("live")) setInterval(refresh, 2_000);

// The playground tests what is typed, half a second after the last key; a choice fills its field at once.
const playground = document.getElementById("playground");
let [pause, sent] = [0, new AbortController()];
const testTyped = async (chosen) => {
  sent.abort();
  sent = new AbortController();
  const body = new URLSearchParams(new FormData(playground));
  if (!body.get("body") && !body.get("event")) return;
  const request = { method: "POST", body, signal: sent.signal };
  const text = await fetch(playground.action, request).then((response) => response.text()).catch(() => "");
  const page = new DOMParser().parseFromString(text, "text/html");
  const result = page.getElementById("result") ?? page.querySelector("main");
  if (result) document.getElementById("result").replaceChildren(...result.childNodes);
  if (!chosen || !page.getElementById("playground")) return;
  playground.replaceChildren(...page.getElementById("playground").childNodes);
  playground.elements[chosen.name].focus();
};
playground?.addEventListener("input", (event) => {
  clearTimeout(pause);
  const chosen = event.target.closest("select");
  if (event.target.name === "body" && playground.elements.event) playground.elements.event.value = "";
  pause = setTimeout(testTyped, chosen ? 0 : 500, chosen);
});

// A chart shows the values of the time below the pointer, as its table has them, and marks the time.
document.querySelectorAll("figure.chart").forEach(addTip);
function addTip(figure) {
  const [svg, table] = [figure.querySelector("svg"), figure.querySelector("table")];
  const tip = figure.insertBefore(document.createElement("output"), figure.querySelector("details"));
  const mark = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
  mark.setAttribute("class", "line line1");
  const all = table.tBodies[0].rows;
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const across = ((event.clientX - box.left) / box.width * 410 - 3) / 360;
    const at = Math.min(Math.max(Math.round(across * (all.length - 1)), 0), all.length - 1);
    mark.setAttribute("d", `M${(360 * at) / Math.max(1, all.length - 1)} 0V100`);
    tip.value = [...all[at].cells].map((cell, number) => (number ? `${names[number]} ${cell.textContent || "no value"}` : `${cell.textContent} UTC`)).join(", ");
  });
  svg.addEventListener("pointerleave", () => { tip.value = ""; mark.removeAttribute("d"); });
}
