package main

import (
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// contention is many goroutines of one client, each with its own lock, over an unguarded counter.
type contention struct {
	client  *zk.Conn
	path    string
	counter string
	mutex   sync.Mutex
	grants  []string
	failure error
}

func newContention(client *zk.Conn, path, counter string) *contention {
	return &contention{client: client, path: path, counter: counter}
}

// run returns VALUE:SEQUENCE of each grant. The first failure stops the others after their round.
func (c *contention) run(rounds, threads int) ([]string, error) {
	left := int64(rounds)
	var all sync.WaitGroup
	for thread := 0; thread < threads; thread++ {
		all.Add(1)
		go func() {
			defer all.Done()
			lock := zk.NewLock(c.client, c.path, zk.WorldACL(zk.PermAll))
			for atomic.AddInt64(&left, -1) >= 0 {
				if err := c.inside(lock); err != nil {
					c.mutex.Lock()
					c.failure = err
					c.mutex.Unlock()
					atomic.StoreInt64(&left, 0)
				}
			}
		}()
	}
	all.Wait()
	return c.grants, c.failure
}

func (c *contention) inside(lock *zk.Lock) error {
	if err := lock.Lock(); err != nil {
		return err
	}
	value, err := c.increment()
	if err == nil {
		node := lockPath(lock)
		sequence := node[len(node)-10:]
		c.mutex.Lock()
		c.grants = append(c.grants, fmt.Sprintf("%d:%s", value, sequence))
		c.mutex.Unlock()
	}
	if failure := lock.Unlock(); err == nil {
		err = failure
	}
	return err
}

// increment reads, then writes without a version: two holders at once lose an increment or read a
// value twice.
func (c *contention) increment() (int, error) {
	data, _, err := c.client.Get(c.counter)
	if err != nil {
		return 0, err
	}
	value, err := strconv.Atoi(string(data))
	if err != nil {
		return 0, err
	}
	_, err = c.client.Set(c.counter, []byte(strconv.Itoa(value+1)), -1)
	return value, err
}

// lockPath is the node by which the lock is held, or nothing. The lock does not show it.
func lockPath(lock *zk.Lock) string {
	return reflect.ValueOf(lock).Elem().FieldByName("lockPath").String()
}
