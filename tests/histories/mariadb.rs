//! MariaDB: a server that keeps what it has acknowledged, or one that forgets all when it is killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_recipes::{Guarantee, MySqlBuilder};
use recipes_core::{SessionOptions, Store};
use test_rig::{Durability, MariaDbServer};

use crate::primary::{Keeps, Machine, observed, process};
use crate::servers::Done;
use crate::trouble::Trouble;

/// Writes down the session of each node.
const OBSERVE: &str = "CREATE TABLE observed (path VARBINARY(3001), session BIGINT) \
    $$END$$ \
    CREATE TRIGGER observed AFTER INSERT ON lock_recipes_nodes FOR EACH ROW \
    BEGIN \
      IF NEW.o <> 0 THEN \
        INSERT INTO observed VALUES (CONCAT(NEW.dir, '/', NEW.name), NEW.o); \
      END IF; \
    END";

impl Machine for MariaDbServer {
    process!();

    fn troubles(keeps: Keeps, last: Duration) -> Vec<Trouble> {
        match keeps {
            Keeps::All => vec![Trouble::Evict, Trouble::Evict, Trouble::CutConnections],
            // What was observed of a session that is ended is forgotten, too.
            Keeps::Most => vec![Trouble::ForgetLast(last); 6],
        }
    }

    fn guarantee(keeps: Keeps) -> Guarantee {
        match keeps {
            Keeps::All => Guarantee::OneCopy,
            Keeps::Most => Guarantee::BestEffort,
        }
    }

    async fn start(keeps: Keeps, _random: &mut Rng) -> Done<Self> {
        let durability = match keeps {
            Keeps::All => Durability::Flushed,
            Keeps::Most => Durability::Late,
        };
        Ok(Self::builder().durability(durability).start().await?)
    }

    fn url_at(&self, port: u16) -> String {
        self.url_at(&format!("127.0.0.1:{port}"))
    }

    fn store(url: &str, options: SessionOptions) -> Arc<dyn Store> {
        MySqlBuilder::from(options).new_server().store(url).unwrap()
    }

    async fn cut_connections(&self) -> Done {
        let ids = "SELECT id FROM information_schema.processlist \
                   WHERE id <> CONNECTION_ID() AND db = 'locks' AND RAND() < 0.5";
        for id in self.sql(ids).await?.concat() {
            // It may be gone.
            drop(self.sql(&format!("KILL {id}")).await);
        }
        Ok(())
    }

    async fn set_clock(&self, by_us: i64) -> Done {
        // The store remembers the clock when it last looked. To change that is to set it.
        let set = format!("UPDATE lock_recipes_clock SET last = last - ({by_us})");
        self.sql(&set).await?;
        Ok(())
    }

    /// It forgets more than that: all since its log was last written, which is once in 45 minutes, or when
    /// the buffer is full.
    async fn forget_last(&self, _last: Duration) -> Done {
        self.kill().await?;
        Ok(self.start_again().await?)
    }

    async fn observe(&self) -> Done {
        self.sql(OBSERVE).await?;
        // What the run needs must not be forgotten.
        let flush = "innodb_flush_log_at_trx_commit";
        let was = self
            .sql(&format!("SELECT @@{flush}"))
            .await?
            .concat()
            .concat();
        self.set(flush, "1").await?;
        self.sql("INSERT INTO observed VALUES ('', 0)").await?;
        Ok(self.set(flush, &was).await?)
    }

    async fn sessions(&self) -> BTreeMap<String, i64> {
        let rows = self.sql("SELECT path, session FROM observed").await;
        observed(rows.unwrap())
    }

    async fn somebody(&self) -> Option<i64> {
        let asked = "SELECT o FROM lock_recipes_nodes \
                     WHERE o <> 0 AND dir LIKE '/histories/%' ORDER BY RAND() LIMIT 1";
        let rows = self.sql(asked).await.ok()?;
        rows.concat().first()?.parse().ok()
    }

    async fn expire(&self, session: i64) -> Done {
        let asked = format!(
            "SELECT HEX(secret), connection FROM lock_recipes_sessions WHERE id = {session}"
        );
        if let [secret, connection] = &self.sql(&asked).await?.concat()[..] {
            let close = format!("CALL lock_recipes_close({session}, X'{secret}', {connection})");
            self.sql(&close).await?;
        }
        Ok(())
    }

    async fn replica(&self, _keeps: Keeps) -> Done<Option<Self>> {
        Ok(None)
    }

    async fn cut_off(&self) -> Done {
        unreachable!("there is no replica")
    }

    async fn promote(&self) -> Done {
        unreachable!("there is no replica")
    }

    async fn has_caught_up_with(&self, _primary: &Self) -> Done {
        unreachable!("there is no replica")
    }
}
