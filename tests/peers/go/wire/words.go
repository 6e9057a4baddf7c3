// Package wire speaks the protocol of ../../README.md: one command a line on stdin.
package wire

import (
	"net/url"
	"strconv"
	"strings"
)

// Words are those of one line: separated by one space, bytes percent-encoded.
type Words struct {
	left []string
}

func newWords(line string) *Words {
	return &Words{strings.Split(line, " ")}
}

// IsEmpty is true after the last word.
func (w *Words) IsEmpty() bool {
	return len(w.left) == 0
}

// Next is empty after the last word.
func (w *Words) Next() string {
	if w.IsEmpty() {
		return ""
	}
	word, err := url.QueryUnescape(w.left[0])
	if err != nil {
		panic(err)
	}
	w.left = w.left[1:]
	return word
}

// Number is the next word, which must be one.
func (w *Words) Number() int {
	number, err := strconv.Atoi(w.Next())
	if err != nil {
		panic(err)
	}
	return number
}

func encode(value string) string {
	// To be read by people, too.
	return strings.NewReplacer("%2F", "/", "%3A", ":").Replace(url.QueryEscape(value))
}
