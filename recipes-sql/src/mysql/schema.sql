-- The tables of the locks, for MariaDB 10.6 and MySQL 8.4, and later. `@prefix@` stands for the prefix of all
-- names. What only one of the two products can read is in comments that it alone carries out: `/*M!` and
-- `/*!80400`.
--
-- A session has two connections: A for changes and reads, B for beats and polls, so that a beat never waits
-- until somebody's commit is flushed. What they call:
--
-- | procedure | on    | what it does |
-- |-----------|-------|--------------|
-- | open      | A     | opens a session |
-- | resume    | A     | goes on with a session over a new connection |
-- | requests  | A     | carries out requests of a session |
-- | enter     | A     | the same, for an acquire that finds everything in order |
-- | leave     | A     | the same, for the release of one lock |
-- | close     | A     | closes a session |
-- | beat      | B     | keeps a session alive, ends others, tidies up |
-- | purge     | -     | deletes nodes of sessions that have ended; for `beat` and `close` |
-- | tidy      | -     | removes empty containers; for `beat` and `requests` |
-- | fence     | users | keeps a lock's node until the user's transaction ends |
--
-- Each is one transaction, but for `purge`, `tidy` and `fence`, which are part of one. If it fails, it has done
-- nothing. It is READ COMMITTED, as REPEATABLE READ locks gaps between rows and so stops others.
--
-- Rows are locked in this order: session, clock, parents by path, nodes. Whoever sweeps and tidies up leaves
-- what is locked for the next time. What still deadlocks has done nothing, and is sent again.
--
-- There are no stored functions, as a server with a binary log lets few users create them. UTC_TIMESTAMP is
-- the time of each statement in a procedure, and depends on nobody's time zone.
--
-- | table      | a row is |
-- |------------|----------|
-- | meta       | the version of this schema |
-- | clock      | the store's clock, one row |
-- | sessions   | a live session |
-- | beats      | until when a live session lives. Beats write it, and nothing else |
-- | ended      | a session that ended and still has nodes |
-- | nodes      | a node of the tree. The root is a row, too |
-- | containers | a container, and when to look whether it is empty |
--
-- Times are microseconds, text is bytes. A path of at most 1,500 bytes fits: InnoDB allows 3,072 in a key.

-- Procedures keep both.
SET NAMES binary, SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';

-- The version is written last, when all is there.
CREATE TABLE IF NOT EXISTS @prefix@meta (
  version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

-- All sessions share this row. So beats write it rarely, and skip it if another session just does.
--
-- | field      | meaning |
-- |------------|---------|
-- | last       | the server's clock when this row was written, in UTC |
-- | own        | the store's own clock then: what deadlines are compared with |
-- | step       | the most that it advances between two beats: a quarter of the shortest session timeout |
-- | due        | no session is due before this, by the store's clock |
-- | tidied     | no container is to be looked at before this, by the store's clock |
-- | number     | the id of the last session |
-- | run        | the run of the server and of these tables that the last session was opened or resumed on |
-- | longest    | the longest session timeout so far |
-- | quarantine | the end of the quarantine after a new run, by the store's clock |
-- | doubt      | when the last session is due that was silent for longer than the store's clock says |
CREATE TABLE IF NOT EXISTS @prefix@clock (
  id TINYINT NOT NULL PRIMARY KEY,
  last BIGINT NOT NULL,
  own BIGINT NOT NULL,
  step BIGINT NOT NULL,
  due BIGINT NOT NULL,
  tidied BIGINT NOT NULL,
  number BIGINT NOT NULL,
  run VARBINARY(255) NOT NULL,
  longest BIGINT NOT NULL,
  quarantine BIGINT NOT NULL,
  doubt BIGINT NOT NULL
) ENGINE = InnoDB;

-- Whoever changes something for a session locks its row here, so that nobody ends it meanwhile.
-- `connection` is the number of the connection by which the session is known. What was sent over an
-- earlier one and arrives late finds no session.
CREATE TABLE IF NOT EXISTS @prefix@sessions (
  id BIGINT NOT NULL PRIMARY KEY,
  secret VARBINARY(64) NOT NULL,
  timeout BIGINT NOT NULL,
  connection BIGINT NOT NULL,
  KEY by_timeout (timeout)
) ENGINE = InnoDB;

-- Not in `sessions`, where a beat would wait for a transaction of its session to be flushed. There is no
-- index on the deadline: beats would leave millions of old entries in it while somebody's long
-- transaction keeps the server from purging. `clock.due` says when to look at all rows.
CREATE TABLE IF NOT EXISTS @prefix@beats (
  session BIGINT NOT NULL PRIMARY KEY,
  deadline BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS @prefix@ended (
  id BIGINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

-- The path of a node is `dir`, a slash and `name`. The root has neither.
--
-- | field | meaning |
-- |-------|---------|
-- | seq   | place among its siblings, from 1; 0 if it is not sequential |
-- | c, m  | created by, changed by |
-- | v     | version |
-- | o     | owner, 0 for none |
-- | q     | children created so far |
-- | p     | children changed by. It is at least the number of every node that was ever there |
-- | low   | no sequential child has a place below this |
-- | d     | data |
--
-- `low` is for listings: what was deleted stays in the index until no transaction on the server may want
-- to see it, which can be hours. A listing begins at `low`, and does not pass all that.
CREATE TABLE IF NOT EXISTS @prefix@nodes (
  dir VARBINARY(1500) NOT NULL,
  name VARBINARY(1500) NOT NULL,
  seq BIGINT NOT NULL,
  c BIGINT NOT NULL,
  m BIGINT NOT NULL,
  v INT NOT NULL,
  o BIGINT NOT NULL,
  q BIGINT NOT NULL,
  p BIGINT NOT NULL,
  low BIGINT NOT NULL,
  d LONGBLOB NOT NULL,
  PRIMARY KEY (dir, name),
  KEY by_seq (dir, seq),
  KEY by_owner (o)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS @prefix@containers (
  dir VARBINARY(1500) NOT NULL,
  name VARBINARY(1500) NOT NULL,
  look BIGINT NOT NULL,
  PRIMARY KEY (dir, name),
  KEY by_look (look)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT IGNORE INTO @prefix@clock VALUES (1, 0, 0, 0, 0, 0, 0, '', 0, 0, 0);
INSERT IGNORE INTO @prefix@nodes VALUES ('', '', 0, 0, 0, 0, 0, 0, 0, 0, '');
