package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrInvalidToken is the error of Config.Review for a token of nobody, for example one that has expired.
	ErrInvalidToken = errors.New("the API server does not accept the token")
	// ErrNotPermitted is the error of Config.Review for a token of a user who may not register the plugin.
	ErrNotPermitted = errors.New("the token belongs to a user who may not register the plugin")
)

const (
	// maxTokenBytes is the greatest size of a token.
	maxTokenBytes = 64 << 10
	// maxTokenAnswerBytes is the greatest size of the answer with the token, which is read before the token is verified.
	maxTokenAnswerBytes = maxTokenBytes + 1<<10
)

// checkToken gets the token of the plugin at the other end of the connection and has it reviewed. No text of the plugin
// is part of the refusal, and none that has the token.
func (c *Config) checkToken(ctx context.Context, conn grpc.ClientConnInterface, plugin string) *refusal {
	if c.Token == nil || c.Review == nil {
		return &refusal{reviewFailed, "the token of the plugin could not be verified: there is no API server"}
	}
	token, err := c.Token(ctx, shortAnswers{conn})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return &refusal{noToken, "the plugin does not implement GetToken, which the authentication Token requires"}
	case err != nil:
		return &refusal{noToken, fmt.Sprintf("the plugin did not return its token: %s", status.Code(err))}
	case token == "":
		return &refusal{noToken, "the token of the plugin is empty"}
	case len(token) > maxTokenBytes:
		return &refusal{noToken, fmt.Sprintf("the token of the plugin has more than %d bytes", maxTokenBytes)}
	case strings.ContainsFunc(token, isNoTokenCharacter):
		return &refusal{noToken, "the token of the plugin has a character that is not a visible one of ASCII"}
	}
	if err := c.Review(ctx, token, plugin); err != nil {
		return reviewRefusal(err, token)
	}
	return nil
}

// isNoTokenCharacter returns whether the character is in no bearer token (RFC 6750, section 2.1), as a space or
// newline.
func isNoTokenCharacter(r rune) bool { return r <= ' ' || r > '~' }

// reviewRefusal is the refusal for an error of a review.
func reviewRefusal(err error, token string) *refusal {
	r := &refusal{reviewFailed, "the token of the plugin could not be verified: " + err.Error()}
	if errors.Is(err, ErrInvalidToken) {
		r = &refusal{invalidToken, err.Error()}
	}
	if errors.Is(err, ErrNotPermitted) {
		r = &refusal{notPermitted, err.Error()}
	}
	if strings.Contains(r.message, token) {
		r.message = "the review of the token has failed, with a reason that repeats the token"
	}
	return r
}

// shortAnswers is a connection for the call that returns the token.
type shortAnswers struct{ grpc.ClientConnInterface }

// Invoke makes a call whose answer is as long as that with a token may be.
func (s shortAnswers) Invoke(ctx context.Context, method string, request, answer any, opts ...grpc.CallOption) error {
	return s.ClientConnInterface.Invoke(ctx, method, request, answer,
		append(opts[:len(opts):len(opts)], grpc.MaxCallRecvMsgSize(maxTokenAnswerBytes))...)
}
