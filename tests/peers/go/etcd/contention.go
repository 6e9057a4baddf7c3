package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sys/unix"

	"go-peer/wire"
)

// contention is many sessions of one client over an unguarded counter. Each is an owner of its own: two mutexes of one
// session have the same key.
type contention struct {
	client  *client
	prefix  string
	counter string
	mutex   sync.Mutex
	grants  []string
	failure error
	journal *os.File
	// worker is what the journal calls this process, attempts how many it has made.
	worker   int
	attempts int64
}

func newContention(client *client, words *wire.Words) *contention {
	return &contention{client: client, prefix: words.Next(), counter: words.Next()}
}

// run returns VALUE:REVISION of each grant. The first failure stops the others after their round.
func (c *contention) run(words *wire.Words) ([]string, error) {
	left, threads := int64(words.Number()), words.Number()
	if !words.IsEmpty() {
		journal, err := os.OpenFile(words.Next(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			return nil, err
		}
		defer journal.Close()
		c.journal, c.worker = journal, words.Number()
	}
	var all sync.WaitGroup
	for thread := 0; thread < threads; thread++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := c.work(&left); err != nil {
				c.mutex.Lock()
				c.failure = err
				c.mutex.Unlock()
				atomic.StoreInt64(&left, 0)
			}
		}()
	}
	all.Wait()
	return c.grants, c.failure
}

func (c *contention) work(left *int64) error {
	session, err := c.client.newSession()
	if err != nil {
		return err
	}
	defer session.Close()
	lock := concurrency.NewMutex(session, c.prefix)
	for atomic.AddInt64(left, -1) >= 0 {
		if err := c.round(session, lock); err != nil {
			return err
		}
	}
	return nil
}

func (c *contention) round(session *concurrency.Session, lock *concurrency.Mutex) error {
	attempt := atomic.AddInt64(&c.attempts, 1)
	c.write(attempt, now(), "invoked mutex %d %s", session.Lease(), c.prefix)
	if err := lock.Lock(context.Background()); err != nil {
		c.write(attempt, now(), "ended")
		return err
	}
	at := now()
	// All that it has to say about being valid.
	if lost(session) {
		c.write(attempt, now(), "ended")
		return fmt.Errorf("lost before it was used: %s", lock.Key())
	}
	c.write(attempt, at, "granted %d %s", revision(lock), lock.Key())
	value, failure := c.increment()
	if failure == nil {
		c.mutex.Lock()
		c.grants = append(c.grants, fmt.Sprintf("%d:%d", value, revision(lock)))
		c.mutex.Unlock()
	}
	at = now()
	if lost(session) {
		c.write(attempt, now(), "lost")
	} else {
		c.write(attempt, at, "releasing")
	}
	if err := lock.Unlock(context.Background()); err != nil {
		c.write(attempt, now(), "let-go")
		return err
	}
	c.write(attempt, now(), "released")
	return failure
}

func lost(session *concurrency.Session) bool {
	select {
	case <-session.Done():
		return true
	default:
		return false
	}
}

// increment reads, then writes without a condition: two holders at once lose an increment or read a
// value twice.
func (c *contention) increment() (int, error) {
	ctx := context.Background()
	read, err := c.client.Get(ctx, c.counter)
	if err != nil {
		return 0, err
	}
	if len(read.Kvs) == 0 {
		return 0, fmt.Errorf("no counter: %s", c.counter)
	}
	value, err := strconv.Atoi(string(read.Kvs[0].Value))
	if err != nil {
		return 0, err
	}
	_, err = c.client.Put(ctx, c.counter, strconv.Itoa(value+1))
	return value, err
}

// write appends a line to the journal, as contenders of other languages do.
func (c *contention) write(attempt, at int64, step string, values ...any) {
	if c.journal == nil {
		return
	}
	step = fmt.Sprintf(step, values...)
	if _, err := fmt.Fprintf(c.journal, "%d %d.%d.0 %s\n", at, c.worker, attempt, step); err != nil {
		panic(err)
	}
}

// now is the machine's monotonic clock, in nanoseconds: the same in all processes.
func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}
