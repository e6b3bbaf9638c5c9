// The subcommands: each takes its own arguments (argv[0] is the subcommand) and returns an exit code.
#pragma once

namespace mlxcel::app {

int run_command(int argc, char** argv);       // run [MODEL]
int generate_command(int argc, char** argv);  // generate -m REF
int chat_command(int argc, char** argv);      // chat -m REF
int embed_command(int argc, char** argv);
int rerank_command(int argc, char** argv);
int list_command(int argc, char** argv);
int inspect_command(int argc, char** argv);
int arch_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int download_command(int argc, char** argv);
int rm_command(int argc, char** argv);
int doctor_command(int argc, char** argv);
int quantize_command(int argc, char** argv);
int perplexity_command(int argc, char** argv);
int tune_command(int argc, char** argv);
int split_mtp_command(int argc, char** argv);

struct Command {
  const char* name;
  const char* alias;  // or null
  const char* group;  // heading in the help
  const char* about;
  int (*run)(int argc, char** argv);
};

}  // namespace mlxcel::app
