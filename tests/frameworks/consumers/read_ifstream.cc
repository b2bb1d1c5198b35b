// read_ifstream.cc - prints a hash of each file of a tree, read with std::ifstream.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

namespace fs = std::filesystem;

static std::uint64_t hash_file(const fs::path &path)
{
    std::uint64_t hash = 0xcbf29ce484222325u;
    std::ifstream file(path, std::ios::binary);

    if (!file)
        throw std::runtime_error("cannot open " + path.string());
    for (std::istreambuf_iterator<char> at(file), end; at != end; ++at)
        hash = (hash ^ static_cast<unsigned char>(*at)) * 0x100000001b3u;
    return hash;
}

int main(int argc, char **argv)
{
    std::vector<fs::path> paths;

    if (argc != 2)
        return 2;
    for (const auto &entry : fs::recursive_directory_iterator(argv[1]))
        if (entry.is_regular_file() && !entry.is_symlink())
            paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const auto &path : paths)
        std::cout << path << ' ' << fs::file_size(path) << ' ' << hash_file(path)
                  << '\n';
    return 0;
}
