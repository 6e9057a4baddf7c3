// The lock of go-zookeeper, driven by one command a line on stdin. The protocol is in ../README.md.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const connectMax = 15 * time.Second

type peer struct {
	mutex   sync.Mutex
	clients map[string]*zk.Conn
	locks   map[string]*namedLock
	threads map[string]chan func()
	answers sync.Mutex
}

// namedLock is a lock and its directory.
type namedLock struct {
	*zk.Lock
	path string
}

func main() {
	p := &peer{
		clients: map[string]*zk.Conn{},
		locks:   map[string]*namedLock{},
		threads: map[string]chan func(){},
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		p.dispatch(commands.Text())
	}
	p.closeAll()
}

// dispatch hands the command to its thread. The reader of stdin itself never waits.
func (p *peer) dispatch(line string) {
	words := newWords(line)
	id, thread, verb := words.next(), words.next(), words.next()
	if verb == "exit" {
		p.closeAll()
		p.answer(id, nil, nil)
		os.Exit(0)
	}
	run := func() {
		values, err := p.perform(verb, words)
		p.answer(id, values, err)
	}
	if thread == "main" {
		go run()
		return
	}
	queue, known := p.threads[thread]
	if !known {
		queue = make(chan func(), 100)
		p.threads[thread] = queue
		go func() {
			for command := range queue {
				command()
			}
		}()
	}
	queue <- run
}

func (p *peer) answer(id string, values []string, err error) {
	words := []string{id, "ok"}
	if err != nil {
		words = []string{id, "error", "error", strings.Join(strings.Fields(err.Error()), " ")}
		values = nil
	}
	for _, value := range values {
		words = append(words, encode(value))
	}
	p.answers.Lock()
	defer p.answers.Unlock()
	fmt.Println(strings.Join(words, " "))
}

func (p *peer) perform(verb string, words *words) (values []string, err error) {
	switch verb {
	case "version":
		return version()
	case "open":
		return p.open(words.next(), words.next(), words.number())
	case "session":
		client, err := p.client(words.next())
		if err != nil {
			return nil, err
		}
		return []string{session(client)}, nil
	case "close":
		client, err := p.client(words.next())
		if err != nil {
			return nil, err
		}
		client.Close()
		return nil, nil
	case "lock":
		return nil, p.define(words.next(), words.next(), words.next())
	case "acquire", "release", "lockpath":
		return p.own(verb, words.next())
	case "contend":
		client, err := p.client(words.next())
		if err != nil {
			return nil, err
		}
		return newContention(client, words.next(), words.next()).run(words.number(), words.number())
	default:
		return nil, fmt.Errorf("unknown verb: %s", verb)
	}
}

// version returns the module's version, as in 1.0.4.
func version() ([]string, error) {
	info, known := debug.ReadBuildInfo()
	if known {
		for _, module := range info.Deps {
			if module.Path == "github.com/go-zookeeper/zk" {
				return []string{strings.TrimPrefix(module.Version, "v")}, nil
			}
		}
	}
	return nil, fmt.Errorf("the program does not know its modules")
}

func (p *peer) open(name, connect string, sessionMs int) ([]string, error) {
	timeout := time.Duration(sessionMs) * time.Millisecond
	client, events, err := zk.Connect(strings.Split(connect, ","), timeout, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	late := time.After(connectMax)
	for client.State() != zk.StateHasSession { // ends with the session or at the deadline
		select {
		case <-events:
		case <-late:
			client.Close()
			return nil, fmt.Errorf("no connection within %v", connectMax)
		}
	}
	go func() {
		for range events { // a client whose events are not read logs about them
		}
	}()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.clients[name] = client
	return []string{session(client)}, nil
}

func session(client *zk.Conn) string {
	return strconv.FormatUint(uint64(client.SessionID()), 16)
}

func (p *peer) define(name, client, path string) error {
	conn, err := p.client(client)
	if err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.locks[name] = &namedLock{zk.NewLock(conn, path, zk.WorldACL(zk.PermAll)), path}
	return nil
}

func (p *peer) own(verb, name string) ([]string, error) {
	p.mutex.Lock()
	lock, known := p.locks[name]
	p.mutex.Unlock()
	if !known {
		return nil, fmt.Errorf("unknown lock: %s", name)
	}
	switch verb {
	case "acquire": // without a timeout: this lock has none
		return []string{"true"}, lock.Lock.Lock()
	case "release":
		return nil, lock.Unlock()
	default:
		if node := lockPath(lock.Lock); node != "" {
			return []string{node}, nil
		}
		return nil, nil
	}
}

func (p *peer) client(name string) (*zk.Conn, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if client, known := p.clients[name]; known {
		return client, nil
	}
	return nil, fmt.Errorf("unknown client: %s", name)
}

// closeAll ends the sessions, so that none outlives its peer.
func (p *peer) closeAll() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, client := range p.clients {
		client.Close()
	}
}
