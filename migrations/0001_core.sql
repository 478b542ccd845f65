-- The durable core: receipts and pending inputs, sessions and their transcript (operations.md, contract.md 2-4).
-- Times are milliseconds since the Unix epoch; ids are lowercase UUIDv7 text.

-- One row for each decision. `decision` is the acceptance number: the order of inputs is read from it, never from
-- ids. Rows outlive their session, so `target` is no foreign key.
CREATE TABLE operations (
  decision INTEGER PRIMARY KEY,
  operation_id TEXT NOT NULL UNIQUE,
  fingerprint TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('session_create', 'message', 'continue', 'skill', 'command')),
  target TEXT,
  -- The explicit owner; NULL where the operation owns itself.
  submission_id TEXT,
  created_at INTEGER NOT NULL,
  admission TEXT NOT NULL CHECK (admission IN ('accepted', 'rejected')),
  http_status INTEGER NOT NULL,
  -- The answer as it was given; it is replayed to the byte.
  body TEXT NOT NULL,
  delivery_status TEXT CHECK (delivery_status IN ('pending', 'committed', 'cancelled')),
  committed_at INTEGER,
  settled_at INTEGER,
  expires_at INTEGER,
  CHECK ((delivery_status IS NULL) = (kind = 'session_create' OR admission = 'rejected')),
  CHECK ((settled_at IS NULL) = (expires_at IS NULL)),
  CHECK (settled_at IS NULL OR delivery_status IS NOT 'pending'),
  CHECK ((committed_at IS NOT NULL) = (delivery_status IS 'committed'))
) STRICT;

CREATE INDEX operations_by_owner ON operations (submission_id) WHERE submission_id IS NOT NULL;
-- Only settled receipts have an end, so the sweep never looks at a waiting one.
CREATE INDEX operations_by_expiry ON operations (expires_at) WHERE expires_at IS NOT NULL;

-- The newest cutoff that the sweep ever applied: an unknown id at or below it is expired for good.
CREATE TABLE retention (
  singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
  floor INTEGER NOT NULL
) STRICT;
INSERT INTO retention (singleton, floor) VALUES (1, 0);

CREATE TABLE sessions (
  session_id TEXT NOT NULL PRIMARY KEY,
  parent_id TEXT REFERENCES sessions (session_id),
  title TEXT,
  workspace TEXT NOT NULL,
  model TEXT NOT NULL,
  settings TEXT NOT NULL,
  phase TEXT NOT NULL CHECK (phase IN ('idle', 'running', 'interrupted')),
  -- Why the head of the queue cannot be consumed; speaks for every waiting input.
  blocking_reason TEXT,
  -- The newest row id given out; transcript rows and continuation markers share the counter.
  last_row_id INTEGER NOT NULL DEFAULT 0,
  -- Where the model's transcript starts.
  compaction_row_id INTEGER,
  created_at INTEGER NOT NULL,
  activity_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_activity ON sessions (activity_at, session_id);
CREATE INDEX sessions_by_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL;

-- Accepted inputs that wait, each with its full resolved submission. In acceptance order, so that admissions that share
-- a commit share its pages, whatever sessions they go to. It has no foreign key to its receipt: the sweep would have
-- to search for one, and takes settled receipts only.
CREATE TABLE pending_inputs (
  decision INTEGER PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES sessions (session_id),
  operation_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('message', 'continue', 'skill', 'command')),
  source TEXT NOT NULL,
  display_text TEXT NOT NULL,
  -- What the model will read; NULL where it reads nothing (a continuation, a command).
  model_text TEXT,
  name TEXT,
  arguments TEXT,
  client_id TEXT,
  submission_id TEXT NOT NULL,
  accepted_at INTEGER NOT NULL
) STRICT;

-- Its rows end in the table's key: a queue is read in order, and counted without a look at what it holds.
CREATE INDEX pending_by_session ON pending_inputs (session_id);

CREATE TABLE turns (
  turn INTEGER PRIMARY KEY,
  turn_id TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
  state TEXT NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'interrupted')),
  -- The session's newest row id when the turn began; its own rows come after it.
  row_floor INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER,
  error_code TEXT,
  error_message TEXT,
  CHECK ((ended_at IS NULL) = (state = 'running'))
) STRICT;

CREATE INDEX turns_by_session ON turns (session_id, turn);
-- One turn at a time in a session.
CREATE UNIQUE INDEX turns_running ON turns (session_id) WHERE state = 'running';

-- Which inputs a turn works for, in the order they joined.
CREATE TABLE turn_members (
  turn INTEGER NOT NULL REFERENCES turns (turn) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  operation_id TEXT NOT NULL UNIQUE,
  PRIMARY KEY (turn, position)
) STRICT, WITHOUT ROWID;

-- What was said and done. `text` is what the model reads.
CREATE TABLE transcript_rows (
  session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
  row_id INTEGER NOT NULL,
  role TEXT NOT NULL CHECK (
    role IN ('user', 'assistant', 'thinking', 'tool_call', 'tool_result', 'compaction', 'note')
  ),
  turn_id TEXT,
  message_id TEXT,
  live_id TEXT,
  text TEXT,
  tool_call_id TEXT,
  tool_name TEXT,
  tool_status TEXT CHECK (tool_status IN ('ok', 'error', 'interrupted')),
  -- JSON: a tool call's input, a provider's own metadata.
  payload TEXT,
  created_at INTEGER NOT NULL,
  UNIQUE (session_id, row_id)
) STRICT;

-- How a committed input is shown. No image content, no image reference, no model text.
CREATE TABLE input_display (
  session_id TEXT NOT NULL,
  row_id INTEGER NOT NULL,
  operation_id TEXT NOT NULL,
  source TEXT NOT NULL,
  display_text TEXT NOT NULL,
  client_id TEXT,
  -- JSON: the MIME type, width, height and byte count of each original upload; NULL for none.
  images TEXT,
  PRIMARY KEY (session_id, row_id),
  FOREIGN KEY (session_id, row_id) REFERENCES transcript_rows (session_id, row_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Consumed continuations at their place in the transcript. They survive their receipt.
CREATE TABLE continuation_markers (
  session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
  row_id INTEGER NOT NULL,
  operation_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  client_id TEXT,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (session_id, row_id)
) STRICT, WITHOUT ROWID;

-- Uploads. `row_id` is NULL while the input waits. Contents are rows of their own, because an update of a row
-- would write its bytes again.
CREATE TABLE images (
  image_id TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
  operation_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  row_id INTEGER,
  mime_type TEXT NOT NULL,
  width INTEGER NOT NULL,
  height INTEGER NOT NULL,
  byte_count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX images_by_operation ON images (operation_id, position);
CREATE INDEX images_by_row ON images (session_id, row_id, position);

CREATE TABLE image_contents (
  content INTEGER PRIMARY KEY,
  image_id TEXT NOT NULL REFERENCES images (image_id) ON DELETE CASCADE,
  variant TEXT NOT NULL CHECK (variant IN ('original', 'fitted')),
  mime_type TEXT NOT NULL,
  bytes BLOB NOT NULL,
  UNIQUE (image_id, variant)
) STRICT;
