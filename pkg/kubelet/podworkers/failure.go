package podworkers

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxMessage in bytes bounds what is kept of an error. The error of a hook contains all of its output, which may be
// megabytes.
const maxMessage = 4 << 10

// failure is how an operation failed.
type failure struct {
	at time.Time
	// message is the result of messageOf, empty if no operation has failed.
	message string
	// count is how many operations have failed since the last one that succeeded.
	count int
}

// view shows a failure, nil if there was none.
func (f failure) view() *ErrorView {
	if f.message == "" {
		return nil
	}
	return &ErrorView{Time: f.at, Message: f.message, Failures: f.count}
}

// messageOf returns the beginning of an error's text as one printable line of 1 to maxMessage bytes. It puts the whole
// text together, which may be long, so it must not be called under a lock.
func messageOf(err error) string {
	// Replacing characters that are not printable can make the text longer, hence the second cut.
	text := shorten(oneLine(shorten(err.Error(), maxMessage)), maxMessage)
	if strings.TrimSpace(text) == "" {
		return "an error without text"
	}
	return text
}

// oneLine replaces what does not belong into a line of text.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// shorten cuts a text to at most limit bytes, between characters. The result does not keep the whole text in memory.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
