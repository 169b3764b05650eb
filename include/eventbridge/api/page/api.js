// Sends the calls of the page's forms with the token in the field above, which is neither stored nor sent elsewhere.
const token = document.getElementById("token");
const base = document.querySelector("main [data-base]").dataset.base;

const requestOf = (form) => {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  const headers = new Headers();
  for (const field of form.querySelectorAll("[data-in]")) {
    const value = field.value.trim();
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (value && field.dataset.in === "query") query.append(field.name, value);
    else if (value) headers.set(field.name, value);
  }
  if (token.value.trim()) headers.set("authorization", `Bearer ${token.value.trim()}`);
  const options = { method: form.dataset.method, headers, credentials: "omit", cache: "no-store" };
  const body = form.querySelector("textarea");
  if (body) {
    options.body = body.value;
    headers.set("content-type", form.querySelector("select").value);
  }
  const asked = query.size ? `?${query}` : "";
  return [`${base}${path}${asked}`, options];
};

const textOf = async (form) => {
  try {
    const response = await fetch(...requestOf(form));
    const headers = [...response.headers].map(([name, value]) => `${name}: ${value}`);
    return [`${response.status} ${response.statusText}`, ...headers, "", await response.text()].join("\n");
  } catch (error) {
    return `The call was not sent, or its response was lost: ${error.message}`;
  }
};

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-path]");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector("button");
  const output = form.querySelector("pre");
  button.disabled = true;
  output.hidden = false;
  output.textContent = "...";
  output.textContent = await textOf(form); // as text: a response may quote an event with markup
  button.disabled = false;
});

// Another content type of a body has another example.
document.addEventListener("change", (event) => {
  const option = event.target.closest("form[data-path] select")?.selectedOptions[0];
  if (option) event.target.form.querySelector("textarea").value = option.dataset.example;
});
