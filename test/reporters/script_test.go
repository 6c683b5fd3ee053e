package reporters

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// script is a plugin with answers that a case can change at any time.
type script struct {
	mu sync.Mutex
	// poll is the answer to polls, message that of the stream. nil is a call that is not implemented.
	poll, message []merge.Content
	// pollErr and streamErr are returned instead.
	pollErr, streamErr error
	// hold has polls wait, after they have taken their answer, until it is closed.
	hold chan struct{}
	// polls and streams are how many calls have begun, messages is how many were sent.
	polls, streams, messages int
	// changed is closed and replaced with each change.
	changed chan struct{}
}

var _ reporter.Plugin = (*script)(nil)

// polled is a plugin without a stream, streamed one without polls.
func polled(answer ...merge.Content) *script { return &script{poll: answer} }

func streamed(answer ...merge.Content) *script { return &script{message: answer} }

// set changes the plugin. It returns how many polls had begun before.
func (s *script) set(change func(s *script)) (polls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return s.polls
}

// called is how many polls and streams have begun.
func (s *script) called() (polls, streams int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls, s.streams
}

// sent is how many messages were sent.
func (s *script) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages
}

func (s *script) GetReportContent(ctx context.Context) ([]merge.Content, error) {
	s.mu.Lock()
	answer, err, hold := s.poll, s.pollErr, s.hold
	s.polls++
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err == nil && answer == nil {
		err = reporter.ErrUnimplemented
	}
	return answer, err
}

func (s *script) ListAndWatch(ctx context.Context, send func([]merge.Content)) error {
	s.mu.Lock()
	s.streams++
	s.mu.Unlock()
	var sent []merge.Content
	for ctx.Err() == nil {
		s.mu.Lock()
		message, err := s.message, s.streamErr
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		switch {
		case err != nil:
			return err
		case message == nil:
			return reporter.ErrUnimplemented
		case sent == nil || !reflect.DeepEqual(sent, message):
			sent = message
			send(message)
			s.mu.Lock()
			s.messages++
			s.mu.Unlock()
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// content is a content of the CustomNodeResource.
func content(fields ...merge.ReportField) merge.Content {
	return merge.Content{Kind: node.GroupVersionKind, Fields: fields}
}

func field(part merge.Part, name, value string) merge.ReportField {
	return merge.ReportField{Part: part, Name: name, Value: []byte(value)}
}

// says has annotations below example.com: key, value, key, value.
func says(pairs ...string) merge.Content {
	return content(field(merge.Metadata, "Annotations", annotations(pairs...)))
}

func annotations(pairs ...string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m["example.com/"+pairs[i]] = pairs[i+1]
	}
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(data)
}
