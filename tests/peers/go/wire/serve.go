package wire

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

// Peer carries out commands.
type Peer interface {
	Perform(verb string, words *Words) (values []string, err error)
	// CloseAll ends the sessions, so that none outlives its peer.
	CloseAll()
}

type server struct {
	peer    Peer
	threads map[string]chan func()
	answers sync.Mutex
}

// Serve ends with stdin.
func Serve(peer Peer) {
	s := &server{peer: peer, threads: map[string]chan func(){}}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		s.dispatch(commands.Text())
	}
	peer.CloseAll()
}

// dispatch hands the command to its thread. The reader of stdin itself never waits.
func (s *server) dispatch(line string) {
	words := newWords(line)
	id, thread, verb := words.Next(), words.Next(), words.Next()
	if verb == "exit" {
		s.peer.CloseAll()
		s.answer(id, nil, nil)
		os.Exit(0)
	}
	run := func() {
		values, err := s.peer.Perform(verb, words)
		s.answer(id, values, err)
	}
	if thread == "main" {
		go run()
		return
	}
	queue, known := s.threads[thread]
	if !known {
		queue = make(chan func(), 100)
		s.threads[thread] = queue
		go func() {
			for command := range queue {
				command()
			}
		}()
	}
	queue <- run
}

func (s *server) answer(id string, values []string, err error) {
	words := []string{id, "ok"}
	if err != nil {
		words = []string{id, "error", "error", strings.Join(strings.Fields(err.Error()), " ")}
		values = nil
	}
	for _, value := range values {
		words = append(words, encode(value))
	}
	s.answers.Lock()
	defer s.answers.Unlock()
	fmt.Println(strings.Join(words, " "))
}

// Version returns that of a module, as in 1.0.4.
func Version(path string) ([]string, error) {
	info, known := debug.ReadBuildInfo()
	if known {
		for _, module := range info.Deps {
			if module.Path == path {
				return []string{strings.TrimPrefix(module.Version, "v")}, nil
			}
		}
	}
	return nil, fmt.Errorf("the program does not know its modules")
}
