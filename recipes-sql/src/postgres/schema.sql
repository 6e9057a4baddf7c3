-- What the locks keep in PostgreSQL: one schema, `@schema@`.
--
-- | table      | a row is |
-- |------------|----------|
-- | meta       | the version of the tables and functions; there is one row |
-- | clock      | the store's clock, and what goes with it; there is one row |
-- | sessions   | a live session |
-- | ended      | a session that has ended and may still have nodes |
-- | nodes      | a node |
-- | counts     | what a node has counted that goes with no session |
-- | containers | a node that goes when it has been empty for a while |
-- | watches    | a session that wants to be rung when a node is deleted or its data change |
--
-- All times are microseconds. Numbers of transactions and sessions follow the server's clock, so that
-- a copy that takes the server's place without the last writes does not give them out again.
--
-- A session has two connections: one for requests, one for beats and news. A request locks the session's
-- row against its end (FOR KEY SHARE), until it is committed, and never writes it. A beat writes the row,
-- which that lock allows; it must not wait until the changes of a request are on disk.

CREATE SCHEMA IF NOT EXISTS @schema@;

CREATE TABLE IF NOT EXISTS @schema@.meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version integer NOT NULL
);

-- | column     | meaning |
-- |------------|---------|
-- | last       | the server's clock when the row was written |
-- | own        | the store's own clock then: what deadlines are compared with |
-- | step       | the most that it advances between two writes; a quarter of the shortest session timeout |
-- | due        | no session is due before this, by the store's clock; 0 if one has ended and has nodes |
-- | session    | the last session's id |
-- | run        | the run of the server and of these tables that the last session was opened or resumed on |
-- | longest    | the longest session timeout so far |
-- | quarantine | the end of the quarantine after a new run, by the store's clock |
-- | doubt      | when the last session is due that was silent for longer than the store's clock says |
--
-- It is looked up by the highest `own`: see `counts`.
CREATE TABLE IF NOT EXISTS @schema@.clock (
  one boolean DEFAULT true CHECK (one),
  last bigint NOT NULL,
  own bigint PRIMARY KEY,
  step bigint NOT NULL,
  due bigint NOT NULL,
  session bigint NOT NULL,
  run text,
  longest bigint NOT NULL,
  quarantine bigint NOT NULL,
  doubt bigint NOT NULL
) WITH (fillfactor = 10);

-- The name is what a session says in each call: `id:timeout:secret:connection`. It ends at the deadline, by
-- the store's clock.
CREATE TABLE IF NOT EXISTS @schema@.sessions (
  id bigint PRIMARY KEY,
  name text NOT NULL,
  timeout bigint NOT NULL,
  deadline bigint NOT NULL
) WITH (fillfactor = 30);

CREATE TABLE IF NOT EXISTS @schema@.ended (
  session bigint PRIMARY KEY
);

-- | column | meaning |
-- |--------|---------|
-- | dir    | path of the parent; '' for the root, whose name is '' |
-- | name   | the last part of the path |
-- | seq    | what the name ends with, if the store has put it there; orders the children |
-- | c      | the transaction that created it |
-- | m      | the transaction that last changed its data |
-- | v      | how often they were changed |
-- | o      | the session that it goes with, or 0 |
-- | d      | data |
CREATE TABLE IF NOT EXISTS @schema@.nodes (
  dir text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  c bigint NOT NULL,
  m bigint NOT NULL,
  v integer NOT NULL,
  o bigint NOT NULL,
  d bytea NOT NULL,
  PRIMARY KEY (dir, name)
) WITH (
  fillfactor = 70,
  -- Nodes come and go; what is dead makes every listing slower.
  autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0
);

-- For listings, which say `dir || ''`. Otherwise a plan that is made while there are few nodes would look up names
-- here, or list by the primary key.
CREATE INDEX IF NOT EXISTS nodes_by_seq ON @schema@.nodes ((dir || ''), seq);

CREATE INDEX IF NOT EXISTS nodes_of_session ON @schema@.nodes (o) WHERE o <> 0;

-- | column | meaning |
-- |--------|---------|
-- | q      | how many children were created |
-- | p      | the last transaction that created a child, or is at least that of any child that was deleted |
-- | low    | no child has a `seq` below this |
--
-- Whoever creates a child locks the row and writes it. What was deleted or changed stays in tables and indexes until
-- no transaction in the database may want to see it, which can be hours. Rows are looked up by the highest `p`,
-- and listings begin at `low`: so neither passes all that.
CREATE TABLE IF NOT EXISTS @schema@.counts (
  dir text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  q bigint NOT NULL,
  p bigint NOT NULL,
  low bigint NOT NULL,
  PRIMARY KEY (dir, name, p)
) WITH (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0
);

-- `due`: the next look at it, by the store's clock.
CREATE TABLE IF NOT EXISTS @schema@.containers (
  dir text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  due bigint NOT NULL,
  PRIMARY KEY (dir, name)
);

CREATE INDEX IF NOT EXISTS containers_due ON @schema@.containers (due);

-- The session itself writes its rows. Whoever deletes the node deletes them with it; nobody waits for another's. A crash
-- empties the table; sessions then connect again, and enter theirs. `number` is the client's number of the watch.
CREATE UNLOGGED TABLE IF NOT EXISTS @schema@.watches (
  dir text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  session bigint NOT NULL,
  number bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

CREATE INDEX IF NOT EXISTS watches_on_node ON @schema@.watches (dir, name);

INSERT INTO @schema@.clock SELECT true, 0, 0, 0, 0, 0, NULL, 0, 0, 0
  WHERE NOT EXISTS (SELECT FROM @schema@.clock) ON CONFLICT DO NOTHING;

INSERT INTO @schema@.nodes VALUES ('', '', 0, 0, 0, 0, 0, '') ON CONFLICT DO NOTHING;

INSERT INTO @schema@.counts SELECT '', '', 0, 0, 0
  WHERE NOT EXISTS (SELECT FROM @schema@.counts t WHERE t.dir = '' AND t.name = '');

INSERT INTO @schema@.meta VALUES (true, 5) ON CONFLICT DO NOTHING;
