// A counter in JavaScript, straight on the contract: `POST` adds one and answers the number, `GET` reads.

import { exec, query } from "wasmkeep:actor/storage@0.2.0";
import { Fields, OutgoingBody, OutgoingResponse, ResponseOutparam } from "wasi:http/types@0.2.12";

const TABLE = "CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, n INTEGER)";
const ADD = "INSERT INTO counter VALUES (1, 1) ON CONFLICT DO UPDATE SET n = n + 1 RETURNING n";
const READ = "SELECT n FROM counter";

// Memory lives as long as the instance, so the table is looked for once in its life.
let ready = false;

function count(method) {
  if (!ready) {
    exec(TABLE, []);
    ready = true;
  }
  const { rows } = query(method === "post" ? ADD : READ, []);
  // A value is a variant: `{ tag: "integer", val: 3n }`.
  return rows.length === 0 ? 0n : rows[0][0].val;
}

function answer(out, status, text) {
  const body = new TextEncoder().encode(text);
  const header = (name, value) => [name, new TextEncoder().encode(value)];
  const response = new OutgoingResponse(
    Fields.fromList([header("content-type", "text/plain"), header("content-length", String(body.length))]),
  );
  response.setStatusCode(status);
  const outgoing = response.body();
  ResponseOutparam.set(out, { tag: "ok", val: response });
  {
    using stream = outgoing.write();
    stream.blockingWriteAndFlush(body);
  }
  OutgoingBody.finish(outgoing, undefined);
}

export const incomingHandler = {
  handle(request, out) {
    const method = request.method().tag;
    if (method === "get" || method === "post") {
      answer(out, 200, `${count(method)}\n`);
    } else {
      answer(out, 405, "GET or POST\n");
    }
  },
};
