//! PostgreSQL: one server, or one whose streaming replica takes its place. Replicas are synchronous in
//! every second run: then nothing that was acknowledged is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_recipes::{Guarantee, PostgresBuilder};
use recipes_core::{SessionOptions, Store};
use test_rig::{Durability, PostgresServer, ServerError};

use crate::primary::{Keeps, Machine, observed, process};
use crate::servers::Done;
use crate::trouble::Trouble;

/// Whether commits wait for a replica.
const SYNCHRONOUS: &str = "histories.synchronous";

/// Writes down the session of each node.
const OBSERVE: &str = "
    CREATE TABLE observed (path text, session bigint);
    CREATE FUNCTION observe() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO public.observed VALUES (NEW.dir || '/' || NEW.name, NEW.o);
      RETURN NULL;
    END $$;
    CREATE TRIGGER observed AFTER INSERT ON lock_recipes.nodes
      FOR EACH ROW WHEN (NEW.o <> 0) EXECUTE FUNCTION observe();";

async fn is_synchronous(server: &PostgresServer) -> Result<bool, ServerError> {
    let asked = format!("SELECT current_setting('{SYNCHRONOUS}', true) = 'on'");
    Ok(server.sql(&asked).await? == [["t"]])
}

impl Machine for PostgresServer {
    process!();

    fn troubles(keeps: Keeps, last: Duration) -> Vec<Trouble> {
        match keeps {
            Keeps::All => vec![Trouble::Evict, Trouble::Evict, Trouble::CutConnections],
            // What was observed of a session that is ended may be forgotten, too.
            Keeps::Most => [Trouble::Promote(last), Trouble::Swap(last)].repeat(3),
        }
    }

    /// Not over a promotion that forgets; but a quarantine follows that.
    fn guarantee(_keeps: Keeps) -> Guarantee {
        Guarantee::OneCopy
    }

    async fn start(keeps: Keeps, random: &mut Rng) -> Done<Self> {
        let is_synchronous = keeps == Keeps::Most && random.bool();
        let builder = Self::builder()
            .durability(Durability::Flushed)
            .setting(SYNCHRONOUS, if is_synchronous { "on" } else { "off" });
        Ok(builder.start().await?)
    }

    fn url_at(&self, port: u16) -> String {
        self.url_at(&format!("127.0.0.1:{port}"))
    }

    fn store(url: &str, options: SessionOptions) -> Arc<dyn Store> {
        PostgresBuilder::from(options)
            .new_server()
            .store(url)
            .unwrap()
    }

    async fn cut_connections(&self) -> Done {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'lock_recipes' AND random() < 0.5";
        self.sql(end).await?;
        Ok(())
    }

    async fn set_clock(&self, by_us: i64) -> Done {
        // The store remembers the clock when it last looked. To change that is to set it.
        let set = format!("UPDATE lock_recipes.clock SET last = last - ({by_us})");
        self.sql(&set).await?;
        Ok(())
    }

    async fn forget_last(&self, _last: Duration) -> Done {
        unreachable!("sessions have their commits flushed")
    }

    async fn observe(&self) -> Done {
        self.sql(OBSERVE).await?;
        Ok(())
    }

    async fn sessions(&self) -> BTreeMap<String, i64> {
        let rows = self.sql("SELECT path, session FROM observed").await;
        observed(rows.unwrap())
    }

    async fn somebody(&self) -> Option<i64> {
        let asked = "SELECT o FROM lock_recipes.nodes \
                     WHERE o <> 0 AND dir LIKE '/histories/%' ORDER BY random() LIMIT 1";
        let rows = self.sql(asked).await.ok()?;
        rows.concat().first()?.parse().ok()
    }

    async fn expire(&self, session: i64) -> Done {
        let close = format!(
            "SELECT lock_recipes.close(s.name, s.id, s.timeout) FROM lock_recipes.sessions s \
             WHERE s.id = {session}"
        );
        self.sql(&close).await?;
        Ok(())
    }

    async fn replica(&self, keeps: Keeps) -> Done<Option<Self>> {
        if keeps == Keeps::All {
            return Ok(None);
        }
        let is_synchronous = is_synchronous(self).await?;
        let builder = Self::builder()
            .durability(Durability::Flushed)
            .setting(SYNCHRONOUS, if is_synchronous { "on" } else { "off" });
        let replica = builder.replica_of(self).start().await?;
        Machine::has_caught_up_with(&replica, self).await?;
        if is_synchronous {
            // Only now that there is one.
            self.set("synchronous_standby_names", Some("*")).await?;
        }
        Ok(Some(replica))
    }

    async fn cut_off(&self) -> Done {
        Ok(self.cut_off().await?)
    }

    async fn promote(&self) -> Done {
        self.promote().await?;
        // Its own replicas have its settings.
        Ok(self.join_again().await?)
    }

    async fn has_caught_up_with(&self, primary: &Self) -> Done {
        Ok(self.has_caught_up_with(primary).await?)
    }
}
