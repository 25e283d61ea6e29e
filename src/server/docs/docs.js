// Lists the operations of openapi.json, each with a form to try it.

const base = new URL(".", document.baseURI);

/** An element with text and children. */
function made(tag, text = "", ...children) {
  const element = document.createElement(tag);
  element.textContent = text;
  element.append(...children);
  return element;
}

/** What a reference stands for, or the value itself. */
function resolved(document, value) {
  if (!value?.$ref) return value;
  return value.$ref.slice(2).split("/").reduce((part, key) => part[key], document);
}

/** A field for a parameter, with the values that are known as a list. */
function field(parameter) {
  const { enum: known } = parameter.schema;
  const input = made(known ? "select" : "input");
  for (const value of known ?? []) input.append(made("option", value));
  const label = made("label", `${parameter.name} `, input);
  if (parameter.description) label.append(made("small", ` ${parameter.description}`));
  return { label, parameter, value: () => input.value };
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    return text;
  }
}

/** A command that asks the same, for a shell. */
function command(method, url, headers, body) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const parts = ["curl", ...(method === "POST" ? ["-X POST"] : []), quoted(url.href)];
  for (const [name, value] of Object.entries(headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  // Not -d, which takes what begins with @ for the name of a file.
  if (body !== undefined) parts.push(`--data-raw ${quoted(body)}`);
  return parts.join(" ");
}

function operation(document, path, method, what) {
  const fields = (what.parameters ?? []).map((parameter) => field(resolved(document, parameter)));
  const content = what.requestBody?.content, media = content?.["application/json"] ?? content?.["*/*"];
  const body = media ? made("textarea") : undefined;
  if (body) {
    body.spellcheck = false;
    body.setAttribute("aria-label", "body");
    const [example] = Object.values(media.examples ?? {});
    body.value = example ? JSON.stringify(example.value) : what.requestBody.required ? "" : "{}";
    fields.find(({ parameter }) => parameter.name === "model")?.label.addEventListener("change", (event) => {
      const other = media.examples?.[event.target.value];
      if (other) body.value = JSON.stringify(other.value);
    });
  }
  const send = made("button", "Try");
  send.type = "button";
  const status = made("p");
  const asked = made("pre");
  const answer = made("pre");
  for (const element of [status, asked, answer]) element.hidden = true;
  status.setAttribute("role", "status");
  send.addEventListener("click", async () => {
    const headers = {};
    const asks = [];
    let filled = path;
    for (const { parameter, value } of fields) {
      if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(value()));
      else if (value() && parameter.in === "query") asks.push([parameter.name, value()]);
      else if (value()) headers[parameter.name] = value();
    }
    const url = new URL(filled.slice(1), base);
    for (const [name, value] of asks) url.searchParams.set(name, value);
    const began = performance.now();
    for (const element of [status, asked, answer]) element.hidden = false;
    asked.textContent = command(method.toUpperCase(), url, headers, body?.value);
    try {
      const response = await fetch(url, { method: method.toUpperCase(), headers, body: body?.value });
      const text = await response.text();
      status.textContent = `${response.status} ${response.statusText}, ${(performance.now() - began).toFixed(1)} ms`;
      status.className = response.ok ? "good" : "bad";
      answer.textContent = pretty(text);
    } catch (error) {
      status.textContent = `no answer: ${error.message}`;
      status.className = "bad";
      answer.textContent = "";
    }
  });
  const answers = made("table");
  for (const [code, response] of Object.entries(what.responses)) {
    answers.append(made("tr", "", made("td", code), made("td", resolved(document, response).description)));
  }
  const inside = made("div", "", ...fields.map(({ label }) => label), ...(body ? [body] : []), send, status, asked, answer, answers);
  inside.className = "inside";
  if (what.description) inside.prepend(made("p", what.description));
  const summary = made("summary", "", made("b", method), made("code", path), made("span", ` ${what.summary}`));
  const details = made("details", "", summary, inside);
  details.id = what.operationId;
  return details;
}

async function main() {
  const about = document.getElementById("about");
  const response = await fetch(new URL("openapi.json", base));
  if (!response.ok) {
    about.textContent = `openapi.json is refused: ${(await response.json()).error}`;
    return;
  }
  const described = await response.json();
  about.textContent = `${described.info.summary}. uncork ${described.info.version}. ${described.info.description} `;
  const link = made("a", "openapi.json");
  link.href = new URL("openapi.json", base);
  about.append(link);
  const list = document.getElementById("operations");
  for (const { name } of described.tags) {
    list.append(made("h2", name));
    for (const [path, methods] of Object.entries(described.paths)) {
      for (const [method, what] of Object.entries(methods)) {
        if (what.tags.includes(name)) list.append(operation(described, path, method, what));
      }
    }
  }
  document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
}

main();
