// Command protogen writes the Go code of a protocol: protogen FILE.proto, in the top folder of the repository. It
// compiles the file in Go, so that no installed compiler is needed, and runs protoc-gen-go and protoc-gen-go-grpc, which
// must be in the PATH.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: protogen FILE.proto")
		os.Exit(2)
	}
	if err := generate(filepath.Clean(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// generate writes the Go files beside the .proto file. Its path becomes the name by which programs register the
// protocol, so that it must differ from those of other protocols.
func generate(name string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"."}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
	})
	if err != nil {
		return err
	}
	for _, generator := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(generator, request); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

func run(generator string, request []byte) error {
	command := exec.Command(generator)
	command.Stdin, command.Stderr = bytes.NewReader(request), os.Stderr
	out, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if text := response.GetError(); text != "" {
		return errors.New(text)
	}
	for _, f := range response.GetFile() {
		if err := os.WriteFile(f.GetName(), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
