package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Contenders that share the work are counted after this time, when all have begun.
const begin = 200 * time.Millisecond

// cycles returns the nanoseconds of each acquire and each release, in turn.
func cycles(one contender, length time.Duration) ([]int64, error) {
	var samples []int64
	for start := time.Now(); time.Since(start) < length; {
		begun := time.Now()
		if err := one.take(); err != nil {
			return nil, err
		}
		taken := time.Now()
		if err := one.giveBack(); err != nil {
			return nil, err
		}
		samples = append(samples, taken.Sub(begun).Nanoseconds(), time.Since(taken).Nanoseconds())
	}
	return samples, nil
}

// each returns the nanoseconds of each attempt.
func each(attempt func() error, length time.Duration) ([]int64, error) {
	var samples []int64
	for start := time.Now(); time.Since(start) < length; {
		begun := time.Now()
		if err := attempt(); err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(begun).Nanoseconds())
	}
	return samples, nil
}

// course is what has happened in a contest. Only the holder changes it, apart from isCounted.
type course struct {
	mutex     sync.Mutex
	isCounted bool
	isHeld    bool
	last      int
	released  time.Time
	all       int64
	handedOn  int64
	served    []int64
	gaps      []int64
}

// granted fails if another holds the lock.
func (c *course) granted(to int, at time.Time) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isHeld {
		return errors.New("two hold the lock")
	}
	c.isHeld = true
	if c.isCounted {
		c.served[to]++
		if c.last != to {
			c.handedOn++
		}
		if !c.released.IsZero() {
			c.gaps = append(c.gaps, at.Sub(c.released).Nanoseconds())
		}
	}
	c.last = to
	c.released = time.Time{}
	c.all++
	return nil
}

func (c *course) releases() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.isHeld = false
	c.released = time.Now()
}

func (c *course) count(isCounted bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.isCounted = isCounted
}

// contest returns nanoseconds, grants handed on, all grants, the number of sessions, the grants of each, and gaps.
func contest(contenders []contender, hold, pause, length time.Duration) ([]int64, error) {
	c := &course{last: -1, served: make([]int64, len(contenders))}
	workers := start(len(contenders), func(index int) error {
		if err := contenders[index].take(); err != nil {
			return err
		}
		if err := c.granted(index, time.Now()); err != nil {
			return err
		}
		time.Sleep(hold)
		c.releases()
		if err := contenders[index].giveBack(); err != nil {
			return err
		}
		time.Sleep(pause)
		return nil
	})
	time.Sleep(begin)
	c.count(true)
	begun := time.Now()
	time.Sleep(length)
	c.count(false)
	took := time.Since(begun)
	err := workers.end()
	figures := append([]int64{took.Nanoseconds(), c.handedOn, c.all, int64(len(contenders))}, c.served...)
	return append(figures, c.gaps...), err
}

// together returns the cycles while all were at it, the nanoseconds of that, and all cycles.
func together(contenders []contender, length time.Duration) ([]int64, error) {
	var done int64
	workers := start(len(contenders), func(index int) error {
		if err := contenders[index].take(); err != nil {
			return err
		}
		if err := contenders[index].giveBack(); err != nil {
			return err
		}
		atomic.AddInt64(&done, 1)
		return nil
	})
	time.Sleep(begin)
	before, begun := atomic.LoadInt64(&done), time.Now()
	time.Sleep(length)
	counted, took := atomic.LoadInt64(&done)-before, time.Since(begun)
	err := workers.end()
	return []int64{counted, took.Nanoseconds(), done}, err
}

// workers do rounds, each on a goroutine of its own, until they are to end or one fails.
type workers struct {
	over    int32
	all     sync.WaitGroup
	mutex   sync.Mutex
	failure error
}

func start(count int, round func(index int) error) *workers {
	w := &workers{}
	w.all.Add(count)
	for index := 0; index < count; index++ {
		go func(index int) {
			defer w.all.Done()
			for atomic.LoadInt32(&w.over) == 0 {
				if err := round(index); err != nil {
					w.mutex.Lock()
					w.failure = err
					w.mutex.Unlock()
					return
				}
			}
		}(index)
	}
	return w
}

func (w *workers) end() error {
	atomic.StoreInt32(&w.over, 1)
	w.all.Wait()
	return w.failure
}
