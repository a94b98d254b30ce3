"""Tables of the store, as numbered migrations.  A migration that was released is never changed.

A row is its key columns plus the encoded record.  `number` is the daemon's one order of records: as the row's own
number it costs no index.
"""

from typing import Final

APPLICATION_ID: Final = 0x45525958
"""`ERYX` in ASCII: tells our file from any other SQLite database."""

MIGRATIONS: Final = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE pattern (id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE project (id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE session (id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE offer (
        owner TEXT NOT NULL, owner_id TEXT NOT NULL, tool_id TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (owner, owner_id, tool_id)
    ) STRICT;
    CREATE TABLE run (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, live INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX run_by_session ON run (session_id, number);
    CREATE INDEX run_live ON run (id) WHERE live = 1;
    CREATE TABLE message (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, live INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX message_by_session ON message (session_id, number);
    CREATE INDEX message_live ON message (id) WHERE live = 1;
    CREATE VIRTUAL TABLE message_text USING fts5 (content, tokenize = 'unicode61');
    CREATE TABLE timeline (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL, live INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX timeline_by_run ON timeline (run_id, number);
    CREATE INDEX timeline_live ON timeline (id) WHERE live = 1;
    CREATE TABLE approval (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, live INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX approval_by_session ON approval (session_id, number);
    CREATE INDEX approval_live ON approval (id) WHERE live = 1;
    CREATE TABLE approval_content (
        approval_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX approval_content_by_session ON approval_content (session_id);
    CREATE TABLE withheld (
        id TEXT PRIMARY KEY, session_id TEXT NOT NULL, run_id TEXT NOT NULL, number INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX withheld_by_session ON withheld (session_id);
    CREATE TABLE run_input (
        run_id TEXT NOT NULL, agent_id TEXT NOT NULL, session_id TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (run_id, agent_id)
    ) STRICT;
    CREATE INDEX run_input_by_session ON run_input (session_id);
    CREATE TABLE journal (
        seq INTEGER PRIMARY KEY, at TEXT NOT NULL, topic TEXT NOT NULL, session_id TEXT NOT NULL, body BLOB NOT NULL
    ) STRICT;
    """,
    # Lists of before keep no record of who offered their ids, so those ask until they are saved again.
    """
    DROP TABLE offer;
    CREATE TABLE offers (
        owner TEXT NOT NULL, owner_id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (owner, owner_id)
    ) STRICT;
    CREATE TABLE answer (source TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE generation (id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE shadowed (
        kind TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, id)
    ) STRICT;
    CREATE TABLE prune (id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE entry (
        provider TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (provider, id)
    ) STRICT;
    """,
)
"""One script for each step; `user_version` counts how many a file has had."""
